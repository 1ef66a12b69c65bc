"""``raise``: the caller gets ``DuplicateDispatch`` with the holder's id. At dispatch only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django_jobdedup.outcomes import Decision, Refuse
from django_jobdedup.strategies.base import Conflict, Side, Strategy


@dataclass(frozen=True, slots=True, repr=False)
class Raise(Strategy):
    """Refuse the newcomer with an exception."""

    name: ClassVar[str] = "raise"
    sides: ClassVar[tuple[Side, ...]] = ("dispatch",)
    instead: ClassVar[str] = (
        'a start has no caller to raise to. Write "log" to end it with a warning, '
        'or "reschedule" to run it later.'
    )

    def decide(self, conflict: Conflict) -> Decision:
        """Refuse."""
        return Refuse()
