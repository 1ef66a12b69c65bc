"""``log``: as ``skip``, with a warning in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django_jobdedup.outcomes import Decision, Suppress
from django_jobdedup.strategies.base import Conflict, Strategy


@dataclass(frozen=True, slots=True, repr=False)
class Log(Strategy):
    """Drop the newcomer and log a warning."""

    name: ClassVar[str] = "log"

    def decide(self, conflict: Conflict) -> Decision:
        """Suppress, with a warning."""
        return Suppress(log=True)
