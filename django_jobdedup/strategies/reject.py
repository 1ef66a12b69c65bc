"""``reject``: the newcomer is dead, with the reason; a person decides about it later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django_jobdedup.outcomes import Dead, Decision
from django_jobdedup.strategies.base import Conflict, Strategy


@dataclass(frozen=True, slots=True, repr=False)
class Reject(Strategy):
    """Put the newcomer into the list of dead jobs."""

    name: ClassVar[str] = "reject"

    def decide(self, conflict: Conflict) -> Decision:
        """Give up."""
        return Dead(f"rejected: job {conflict.holder_id} holds its lock")
