"""A verdict: what was decided for one call before anything is published."""

from __future__ import annotations

from dataclasses import dataclass

from django_jobdedup.call import Call
from django_jobdedup.middleware.base import Dispatch, Seat
from django_jobdedup.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class Verdict:
    """Publish a call or not, and what its caller shall see.

    ``seat`` is the pending seat that a failed publish gives back. ``dead``: refused, with a row in the list
    of dead jobs. ``would``: what an observed call would have become instead.
    """

    call: Call
    outcome: Outcome
    publish: bool = True
    seat: Seat | None = None
    holder_id: str = ""
    fingerprint: str = ""
    error: Exception | None = None
    dead: bool = False
    would: str = ""

    def refused(self) -> Dispatch:
        """Return the answer to a caller whose call is not published."""
        return Dispatch(
            self.call, self.outcome, self.holder_id or self.call.id, self.fingerprint, error=self.error
        )
