"""The check of what beat sends: a task that beat has not imported is sent by name, past its policy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from django.apps import apps
from django.core import checks
from django.db import connections, router

from django_jobdedup.checks.messages import readable, warning
from django_jobdedup.policies.resolve import settings_entry

BEAT: Final = "django_celery_beat"


def check_schedule(
    app: Any, tasks: Collection[str], databases: Sequence[str] | None
) -> Iterator[checks.CheckMessage]:
    """Report entries whose task is none of ``tasks``, all that this project imports, and beat with it.

    A name in ``JOBDEDUP_TASKS`` brings its policy with it. Rows of django-celery-beat are read where the
    command may ask their database.
    """
    told: dict[str, Any] = {pattern: {} for pattern in readable("TASKS")}
    for entry, task in [*_of_settings(app), *_of_rows(databases or ())]:
        if task.startswith("celery.") or task in tasks or settings_entry(task, told)[0]:
            continue
        yield warning(
            "W109",
            f"Beat's entry {entry!r} sends {task!r}, which nothing here imports: beat sends it by name, and "
            "a policy of the task counts only when a worker has the message.",
            f"Let beat import its module (Celery's imports, or autodiscover_tasks), or write "
            f"JOBDEDUP_TASKS[{task!r}]. If the task has no policy, silence this warning.",
        )


def _of_settings(app: Any) -> list[tuple[str, str]]:
    """Entry and task of ``beat_schedule``."""
    entries = dict(app.conf.beat_schedule or {})
    return [(str(name), str(_task_of(entry))) for name, entry in entries.items()]


def _task_of(entry: Any) -> object:
    return entry.get("task", "") if isinstance(entry, dict) else entry.task


def _of_rows(databases: Sequence[str]) -> list[tuple[str, str]]:
    """Entry and task of the rows of django-celery-beat that are switched on."""
    if not apps.is_installed(BEAT):
        return []
    model: Any = apps.get_model(BEAT, "PeriodicTask")
    using = router.db_for_read(model)
    if using not in databases:
        return []
    connection = connections[using]
    with connection.cursor() as cursor:
        if model._meta.db_table not in connection.introspection.table_names(cursor):
            return []
    return list(model.objects.using(using).filter(enabled=True).order_by("name").values_list("name", "task"))
