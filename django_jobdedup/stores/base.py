"""The contract of a lock store: requests, results, verbs.

A record is the set of holders of one fingerprint. Each verb is one atomic step and one round trip;
it answers with a small frozen value and never raises. A store that cannot be reached answers
``Unavailable``. All lifetimes are judged by the store's own clock: requests carry durations in
seconds, results carry instants in seconds since the epoch. Repeating a verb whose reply was lost
gives the same result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from django_jobdedup.outcomes import How

#: P reserved, publish not confirmed; W the message exists; R running; K kept after its end.
State = Literal["P", "W", "R", "K"]
#: What a refused dispatch does with a waiting holder.
OnWaiting = Literal["keep", "merge", "over", "soonest"]


@dataclass(frozen=True, slots=True)
class Ref:
    """The address of a record: the shard of its lock name, and its fingerprint."""

    shard: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Merge:
    """How a merged call moves the due time of the waiting holder; seconds."""

    wait: float = 0.0
    max_wait: float | None = None


@dataclass(frozen=True, slots=True)
class Acquire:
    """Ask for a waiting seat.

    ``counts`` are the states of other holders that refuse. ``due_in`` is the time until the job may
    start, ``pending`` the time within which the publish must be confirmed. ``again``: the message
    belongs to a job that was accepted before, so it is never refused. ``received``: the message
    exists already (it came without our header), so the holder waits at once. ``name`` is the lock
    name, for people and counters; ``counted`` adds the answer to the counters.
    """

    ref: Ref
    id: str
    counts: str = "PWR"
    limit: int = 1
    on_waiting: OnWaiting = "keep"
    due_in: float = 0.0
    ttl: float = 5400.0
    pending: float = 15.0
    args: bytes | None = None
    merge: Merge | None = None
    again: bool = False
    received: bool = False
    by: str = ""
    name: str = ""
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask for a running seat for one delivery, named by its ``nonce``.

    ``late`` is the time for which a message of this id may still exist after a crash (late ack);
    0 with early ack. ``gate`` is how many other live runs are tolerated minus one: a start is
    refused when as many others run; 0 tolerates any. ``max_starts`` 0 means no bound.
    """

    ref: Ref
    id: str
    n: int
    nonce: str
    lease: float = 30.0
    ttl: float = 5400.0
    late: float = 0.0
    gate: int = 1
    max_starts: int = 0
    by: str = ""
    name: str = ""
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Token:
    """What a running delivery shows to renew or finish: its record, id and nonce."""

    ref: Ref
    id: str
    nonce: str
    lease: float = 30.0


@dataclass(frozen=True, slots=True)
class Finish:
    """Give a running seat back. ``marker_ttl``: how long the ended id is remembered, seconds."""

    token: Token
    n: int
    how: How = How.RELEASE
    marker_ttl: float = 60.0
    name: str = ""
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Give a waiting seat back.

    ``waiting`` False: the publish failed, surely or perhaps; only an own ``P`` is given back.
    ``waiting`` True: the message was revoked, has expired or is skipped at its start; an own ``P``
    or ``W`` is given back, and the id is closed with a final marker that lives ``marker_ttl``
    seconds, unless its marker says that attempt ``n`` has ended before.
    """

    ref: Ref
    id: str
    n: int = 0
    waiting: bool = False
    marker_ttl: float = 60.0


@dataclass(frozen=True, slots=True)
class Holder:
    """One holder of a record. Instants are seconds since the epoch, 0 where they do not apply."""

    id: str
    state: State
    nonce: str = ""
    lease: float = 0.0
    until: float = 0.0
    due: float = 0.0
    first: float = 0.0
    since: float = 0.0
    ttl: float = 0.0
    over: tuple[str, ...] = ()
    args: bytes | None = None
    merged: int = 0
    starts: int = 0
    refused: int = 0
    fence: int = 0
    by: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """The trace of an ended id: the highest ended attempt, or final, or superseded by another id."""

    n: int = -1
    final: bool = False
    superseded_by: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What a store knows of one fingerprint, dead holders included; ``marker`` is that of the id asked for."""

    ref: Ref
    name: str
    holders: tuple[Holder, ...]
    marker: Marker | None = None
    now: float = 0.0


# --- results -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acquired:
    """The seat is taken, or was this id's before; ``at`` is the store's time."""

    at: float


@dataclass(frozen=True, slots=True)
class Held:
    """Refused: ``id`` is the holder that was counted first."""

    id: str
    state: State
    since: float
    until: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    """Joined the waiting holder ``id``; ``publish`` asks for a copy of its message under attempt ``n``."""

    id: str
    n: int
    publish: bool


@dataclass(frozen=True, slots=True)
class Outside:
    """Publish without a seat: the id has ended for good, or its seat is somebody else's by now."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The own holder waits."""


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no such holder of one's own; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The seat is free; ``refused`` calls had been refused because of it."""

    refused: int


@dataclass(frozen=True, slots=True)
class Owed:
    """Others had merged into this holder: it stays, overdue, for somebody to publish."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The body may run. ``args`` are newer arguments if any, ``at`` the store's time of the claim."""

    fence: int
    at: float
    args: bytes | None = None
    starts: int = 1


@dataclass(frozen=True, slots=True)
class Superseded:
    """The job ``by`` has taken this one's place."""

    by: str


@dataclass(frozen=True, slots=True)
class Done:
    """Another delivery of this id speaks for it."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Not now: ``own`` another delivery of this id runs, else the gate is closed by ``by``."""

    own: bool
    retry_in: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class Early:
    """The due time lies ``retry_in`` seconds ahead."""

    retry_in: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Started too often; the holder is removed and the id closed."""

    starts: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease was moved."""


@dataclass(frozen=True, slots=True)
class Lost:
    """This delivery holds nothing (any more)."""


@dataclass(frozen=True, slots=True)
class Released:
    """The seat is free."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The seat stays taken until its TTL."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The seat waits for the next message of the same id."""


@dataclass(frozen=True, slots=True)
class NotMine:
    """The seat is not this delivery's; holders were left alone."""


@dataclass(frozen=True, slots=True)
class Lapse:
    """A dead holder that was swept: ``lost`` was running, ``lapsed`` waiting or kept, ``abandoned`` pending."""

    what: Literal["lost", "lapsed", "abandoned"]
    ref: Ref
    id: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """A waiting holder with stored arguments whose time has passed: publish it again as attempt ``n``."""

    ref: Ref
    id: str
    n: int
    args: bytes
    name: str


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one pass over the lapsed part of a shard found."""

    lapses: tuple[Lapse, ...]
    overdue: tuple[Overdue, ...]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The store did not answer in time; ``error`` says why, in words."""

    error: str


AcquireResult = Acquired | Held | Merged | Outside | Unavailable
ClaimResult = Claimed | Superseded | Done | Busy | Early | Exhausted | Unavailable
FinishResult = Released | Kept | HandedOver | NotMine | Unavailable


class Store(ABC):
    """A lock store; one per alias and process, shared by threads, safe across fork."""

    #: Alias in ``JOBDEDUP_STORES``.
    alias: str
    #: Number of shards.
    shards: int
    #: Whether a dispatch asks for a worker's presence before it locks.
    needs_presence: bool = True

    @abstractmethod
    def acquire_many(self, requests: Sequence[Acquire]) -> list[AcquireResult]:
        """Ask for waiting seats; one atomic step per shard, at most 1,000 requests each."""

    def acquire(self, request: Acquire) -> AcquireResult:
        """Ask for one waiting seat."""
        return self.acquire_many([request])[0]

    @abstractmethod
    def confirm(self, seats: Sequence[tuple[Ref, str]]) -> list[Confirmed | Gone | Unavailable]:
        """Say that the messages of these (record, id) exist. Creates nothing."""

    @abstractmethod
    def withdraw(self, request: Withdraw) -> Withdrawn | Owed | Gone | Unavailable:
        """Give a waiting seat back."""

    @abstractmethod
    def claim(self, request: Claim) -> ClaimResult:
        """Ask for a running seat."""

    @abstractmethod
    def renew(self, tokens: Sequence[Token]) -> list[Renewed | Lost | Unavailable]:
        """Move the leases of running deliveries to now + lease."""

    @abstractmethod
    def finish(self, request: Finish) -> FinishResult:
        """Give a running seat back."""

    @abstractmethod
    def reap(self, shard: int, limit: int = 100) -> Reaped | Unavailable:
        """Sweep at most ``limit`` records whose moment of attention has passed: O(lapsed)."""

    @abstractmethod
    def remove(self, ref: Ref, shown: Holder) -> Withdrawn | Gone | Unavailable:
        """Remove a holder if id, state, since and until are still those that were shown."""

    @abstractmethod
    def inspect(self, ref: Ref, id: str = "") -> Record | None | Unavailable:
        """Return the record, dead holders included, or None; with the marker of ``id``."""

    @abstractmethod
    def list_locks(self, shard: int, after: float = 0.0, limit: int = 100) -> list[Record] | Unavailable:
        """Return records of a shard by rising moment of attention, from ``after`` (epoch seconds)."""

    @abstractmethod
    def counters(self) -> dict[str, dict[str, int]] | Unavailable:
        """Return ``{lock name: {what: number}}``, added up over all processes."""

    @abstractmethod
    def announce(self, queues: Iterable[str], ttl: float) -> None | Unavailable:
        """Leave the presence key of a worker with this app for each queue, for ``ttl`` seconds."""

    @abstractmethod
    def announced(self, queue: str) -> bool | Unavailable:
        """Say whether a worker with this app has been seen on the queue."""
