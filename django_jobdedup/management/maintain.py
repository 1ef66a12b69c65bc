"""``manage.py jobdedup maintain``: the duties of maintenance, once or for as long as the process lives."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from celery.result import denied_join_result
from django.db import close_old_connections

from django_jobdedup.management.celery_app import loaded_app
from django_jobdedup.management.ending import Ending
from django_jobdedup.management.subcommand import Subcommand
from django_jobdedup.recovery.maintain import NAMES, Done, Maintenance
from django_jobdedup.recovery.not_due import not_due_yet


class Maintain(Subcommand):
    """Do the duties; exit code 1 when one of them could not do all of its work."""

    name = "maintain"
    help = "Publish what is due, reap what has lapsed, delete what is old."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add ``--only`` and ``--loop``."""
        parser.add_argument(
            "--only",
            type=_duties,
            default=(),
            metavar="DUTY[,DUTY]",
            help=f"do these alone: {', '.join(NAMES)}",
        )
        parser.add_argument(
            "--loop", action="store_true", help="go on until SIGTERM or SIGINT, each duty at its own pace"
        )

    def run(self, options: dict[str, Any]) -> int:
        """Do the duties once, or until the process is told to go."""
        loaded_app()
        maintenance = Maintenance()
        # Nobody here waits for a result: without this Celery's Redis backend subscribes to that of each job
        # that the relay publishes, and unsubscribes again.
        with Ending() as ending, denied_join_result():
            while True:
                done = maintenance.run(ending.is_near, options["only"])
                if not options["loop"]:
                    _count_the_rest(done)
                self._report(done, options)
                if not options["loop"]:
                    return 0 if all(each.well for each in done) else 1
                if ending.wait(maintenance.idle(options["only"])):
                    return 0
                close_old_connections()

    def _report(self, done: list[Done], options: dict[str, Any]) -> None:
        for each in done:
            if options["loop"] and each.well and not +each.tally:
                continue  # nothing to do is no news in a loop
            self.say(options, _line(each), each.as_json())


def _duties(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        raise ArgumentTypeError(
            f"there is no duty {', '.join(unknown) or repr(text)}; use {', '.join(NAMES)}"
        )
    return names


def _count_the_rest(done: list[Done]) -> None:
    """Say what the relay has left for later: whoever looks once shall not read that there is nothing."""
    for each in done:
        if each.duty == "relay" and each.well and (number := not_due_yet()):
            each.tally["not_due_yet"] = number


def _line(done: Done) -> str:
    if done.error:
        return f"{done.duty}: failed: {done.error}"
    said = ", ".join(f"{number} {what.replace('_', ' ')}" for what, number in sorted((+done.tally).items()))
    return f"{done.duty}: {said or 'nothing to do'}"
