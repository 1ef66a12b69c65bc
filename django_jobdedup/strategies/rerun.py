"""``rerun``: one more run follows, with the newest arguments. Right for changes ("something changed").

While a job waits, a newcomer's arguments take the place of its own, and no second message is published.
While one runs, the newcomer is a job of its own: its message waits behind the gate, and the broker keeps it
if the worker dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django_jobdedup.outcomes import Decision, Suppress
from django_jobdedup.strategies.base import Conflict, OnWaiting, Side, Strategy


@dataclass(frozen=True, slots=True, repr=False)
class Rerun(Strategy):
    """Merge the newcomer into the job that waits, or let it wait beside the one that runs."""

    name: ClassVar[str] = "rerun"
    sides: ClassVar[tuple[Side, ...]] = ("dispatch",)
    on_waiting: ClassVar[OnWaiting] = "merge"
    beside_running: ClassVar[bool] = True
    instead: ClassVar[str] = (
        "a start has no later call to merge with. "
        'Write lock="until_and_while_executing", which runs one more job after the one that runs.'
    )

    def decide(self, conflict: Conflict) -> Decision:
        """Suppress: asked only where the holder has ended and is kept until its TTL."""
        return Suppress()
