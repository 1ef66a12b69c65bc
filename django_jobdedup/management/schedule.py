"""``manage.py jobdedup schedule``: the entry of the periodic task in django-celery-beat."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, Final

from django.apps import apps
from django.core.management.base import CommandError
from django.db import DatabaseError

from django_jobdedup.management.subcommand import Subcommand
from django_jobdedup.recovery.periodic import EVERY, EXPIRES, NAME

BEAT: Final = "django_celery_beat"
NO_BEAT: Final = (
    "django_celery_beat is not installed. Add it to INSTALLED_APPS and migrate, or write the entry into the "
    f'settings: CELERY_BEAT_SCHEDULE = {{"jobdedup-maintain": {{"task": "{NAME}", "schedule": {EVERY:g}}}}}'
)


class Schedule(Subcommand):
    """Install the entry, or set it right; one that a person has switched off stays off."""

    name = "schedule"
    help = "Have django-celery-beat send the periodic task."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add ``--queue``."""
        parser.add_argument("--queue", help="send it to this queue instead of where Celery routes it")

    def run(self, options: dict[str, Any]) -> int:
        """Write the row. Raises CommandError without django-celery-beat or its tables."""
        if not apps.is_installed(BEAT):
            raise CommandError(NO_BEAT)
        try:
            interval = _interval(int(EVERY))
        except DatabaseError as error:
            raise CommandError(f"{error}; run: manage.py migrate {BEAT}") from error
        entry, created = _model("PeriodicTask").objects.update_or_create(
            task=NAME,
            defaults={
                "interval": interval,
                "crontab": None,
                "solar": None,
                "clocked": None,
                "queue": options["queue"],
                "expire_seconds": int(EXPIRES),
            },
            create_defaults={
                "name": NAME,
                "interval": interval,
                "queue": options["queue"],
                "expire_seconds": int(EXPIRES),
                "description": "Publishes what is due, reaps what has lapsed, deletes what is old.",
            },
        )
        facts = {"entry": entry.name, "created": created, "enabled": entry.enabled, "every": EVERY}
        state = "installed" if created else "set right"
        off = "" if entry.enabled else "; it is switched off"
        self.say(options, f"{entry.name}: {state}, every {EVERY:g} s{off}", facts)
        return 0


def _model(name: str) -> Any:
    return apps.get_model(BEAT, name)


def _interval(every: int) -> Any:
    model = _model("IntervalSchedule")
    # Not get_or_create: the table does not keep two equal rows apart.
    found = model.objects.filter(every=every, period="seconds").first()
    return found or model.objects.create(every=every, period="seconds")
