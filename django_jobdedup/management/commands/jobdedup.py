"""``manage.py jobdedup <subcommand>``: a door, the work is in the modules beside."""

from __future__ import annotations

from typing import Any, Final, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_jobdedup.management.maintain import Maintain
from django_jobdedup.management.schedule import Schedule
from django_jobdedup.management.subcommand import Subcommand

SUBCOMMANDS: Final[tuple[type[Subcommand], ...]] = (Maintain, Schedule)


class Command(BaseCommand):
    """The command for operators."""

    help = "Look after the jobs of django_jobdedup."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the arguments of every subcommand."""
        added = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
        for each in SUBCOMMANDS:
            sub = added.add_parser(each.name, help=each.help, description=each.__doc__)
            sub.add_argument("--json", action="store_true", help="one JSON object a line")
            each(cast(Any, self.stdout)).add_arguments(sub)

    def handle(self, *_: Any, **options: Any) -> None:
        """Run one subcommand; its exit code is that of the process."""
        (chosen,) = (each for each in SUBCOMMANDS if each.name == options["subcommand"])
        code = chosen(cast(Any, self.stdout)).run(options)
        if code:
            raise CommandError(f"{chosen.name}: not all could be done, see above.", returncode=code)
