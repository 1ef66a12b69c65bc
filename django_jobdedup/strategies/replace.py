"""``replace``: the newcomer takes the waiting seat once its message is known to exist.

The older message, when it comes, ends as a success with ``Suppressed(by)``; no queue is searched. A
running job is followed by the newcomer, not replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from django_jobdedup.outcomes import Decision, Suppress
from django_jobdedup.strategies.base import Conflict, OnWaiting, Side, Strategy

_INSTEAD: Final = (
    "a start that met a running job has nothing to take the place of. "
    'Write "skip" to end it, or "reschedule" to run it later.'
)


@dataclass(frozen=True, slots=True, repr=False)
class Replace(Strategy):
    """Let the newcomer come over the job that waits."""

    name: ClassVar[str] = "replace"
    sides: ClassVar[tuple[Side, ...]] = ("dispatch",)
    on_waiting: ClassVar[OnWaiting] = "over"
    beside_running: ClassVar[bool] = True
    instead: ClassVar[str] = _INSTEAD

    def decide(self, conflict: Conflict) -> Decision:
        """Suppress: asked only where the holder has ended and is kept until its TTL."""
        return Suppress()


@dataclass(frozen=True, slots=True, repr=False)
class KeepSoonest(Strategy):
    """Let the newcomer come over the job that waits if it is due sooner, else drop it."""

    name: ClassVar[str] = "keep_soonest"
    sides: ClassVar[tuple[Side, ...]] = ("dispatch",)
    on_waiting: ClassVar[OnWaiting] = "soonest"
    instead: ClassVar[str] = _INSTEAD

    def decide(self, conflict: Conflict) -> Decision:
        """Suppress: the holder is due as soon, runs, or is kept."""
        return Suppress()
