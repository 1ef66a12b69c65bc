"""A subcommand of ``manage.py jobdedup``: one module each."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from argparse import ArgumentParser
from typing import Any, ClassVar, TextIO


class Subcommand(ABC):
    """One subcommand: its name, its arguments and its work."""

    name: ClassVar[str]
    help: ClassVar[str]

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def add_arguments(self, parser: ArgumentParser) -> None:  # noqa: B027 - not every one has its own
        """Add arguments beside ``--json``."""

    @abstractmethod
    def run(self, options: dict[str, Any]) -> int:
        """Do it; return the exit code.

        Raises CommandError, saying what to do instead, for what cannot be done at all.
        """

    def say(self, options: dict[str, Any], text: str, facts: object) -> None:
        """Write a line: the text for people, or the facts as JSON."""
        self.out.write(json.dumps(facts) if options["json"] else text)
        self.out.flush()
