"""``skip``: no job of its own; the caller holds the holder's id.

Right for requests ("make me this"), wrong for changes ("something changed"): a change made while
the holder runs is not seen by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django_jobdedup.outcomes import Decision, Suppress
from django_jobdedup.strategies.base import Conflict, Strategy


@dataclass(frozen=True, slots=True, repr=False)
class Skip(Strategy):
    """Drop the newcomer; at execution it ends as success with ``Suppressed(by)``."""

    name: ClassVar[str] = "skip"

    def decide(self, conflict: Conflict) -> Decision:
        """Suppress."""
        return Suppress()
