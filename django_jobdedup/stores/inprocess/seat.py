"""Working forms of holder, marker and record: milliseconds, changed in place within one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from django_jobdedup.stores.record import Holder, Marker, Ref, State

#: The age at which a seat without news is looked at for the first time, milliseconds.
LOOK: Final = 300_000


@dataclass(slots=True)
class Seat:
    """A holder. ``last`` names the last repeatable step, so that a lost reply can be asked for again."""

    id: str
    state: State
    by: str
    due: int
    since: int
    nonce: str = ""
    lease: int = 0
    until: int = 0
    first: int = 0
    ttl: int = 0
    over: tuple[str, ...] = ()
    args: bytes | None = None
    merged: int = 0
    starts: int = 0
    refused: int = 0
    fence: int = 0
    last: str = ""
    #: Its whole call is kept beside it, see ``stores/durable.py``.
    kept: bool = False

    @property
    def waits(self) -> bool:
        """Say whether its message exists or is about to."""
        return self.state in "PW"

    @property
    def intent(self) -> bool:
        """Say whether it waits with arguments or its call: then time makes it overdue, never dead."""
        return (self.args is not None or self.kept) and self.waits

    @property
    def deadline(self) -> int:
        """Return when it dies."""
        return max(self.lease, self.until) if self.state == "R" else self.until

    def runs(self, now: int) -> bool:
        """Say whether it runs on a live lease."""
        return self.state == "R" and self.lease > now

    def dead(self, now: int) -> bool:
        """Say whether its deadline has passed."""
        return self.deadline <= now and not self.intent

    def lingers(self, now: int) -> bool:
        """Say whether only its message keeps it: it waits, or comes again after a late-acked run."""
        return (self.state == "W" and not self.intent) or (self.state == "R" and not self.runs(now))

    def doubtful(self, now: int) -> bool:
        """Say whether it lingers without news for long enough to ask for its message."""
        return self.lingers(now) and self._news + LOOK <= now

    @property
    def _news(self) -> int:
        return max(self.since, self.lease)

    def attention(self, now: int) -> int:
        """Return when somebody should look at it: a lapsed lease is news even if the seat stays.

        A message may have vanished, so what lingers is looked at at an age of 5, 10, 20 ... minutes as well.
        """
        if self.runs(now):
            return self.lease
        if not self.lingers(now):
            return self.until
        age = LOOK
        while self._news + age <= now:
            age *= 2
        return min(self.until, self._news + age)

    def holder(self) -> Holder:
        """Return the frozen form."""
        return Holder(
            id=self.id,
            state=self.state,
            nonce=self.nonce,
            lease=self.lease / 1000,
            until=self.until / 1000,
            due=self.due / 1000,
            first=self.first / 1000,
            since=self.since / 1000,
            ttl=self.ttl / 1000,
            over=self.over,
            args=self.args,
            merged=self.merged,
            starts=self.starts,
            refused=self.refused,
            fence=self.fence,
            by=self.by,
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """The trace of an id until ``deadline``: ended up to attempt ``n``, final, or superseded ``by`` another.

    A final one keeps the ``nonce`` that ended it; ``number`` is what a repeated withdrawal, removal or
    exhaustion answers. One with ``n`` -1, not final, ends nothing and only keeps that answer.
    """

    deadline: int
    n: int = -1
    final: bool = False
    by: str = ""
    nonce: str = ""
    number: int | None = None

    def marker(self) -> Marker | None:
        """Return the frozen form; None if it ends nothing."""
        if self.by:
            return Marker(superseded_by=self.by)
        if self.final:
            return Marker(final=True)
        return Marker(n=self.n) if self.n >= 0 else None


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A place in the line of a lock, see ``sleeping.py``. ``since`` the first put-off, until ``until``.

    ``by`` is the nonce of the release that has woken it, else empty. A durable store keeps ``call``
    elsewhere.
    """

    since: int
    until: int
    n: int
    call: bytes = b""
    by: str = ""


@dataclass(slots=True)
class Entry:
    """A record: its seats in order of acceptance, when to look at it and when to forget it."""

    ref: Ref
    name: str = ""
    seats: list[Seat] = field(default_factory=list)
    attention: int = 0
    expires: int = 0

    def seat(self, id: str) -> Seat | None:
        """Return the seat of an id."""
        return next((seat for seat in self.seats if seat.id == id), None)
