"""The contract of a lock store.

A record is the set of holders of one fingerprint. Each verb is one atomic step and one round trip;
it answers with a small frozen value and never raises. A store that cannot be reached answers
``Unavailable``. All lifetimes are judged by the store's own clock: requests carry durations in
seconds, results carry instants in seconds since the epoch. Repeating a verb whose reply was lost
gives the same result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from django_jobdedup.stores.record import Holder, Record, Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Sleep, Token, Withdraw
from django_jobdedup.stores.results import (
    AcquireResult,
    ClaimResult,
    Confirmed,
    Event,
    FinishResult,
    Gone,
    Lost,
    Owed,
    Reaped,
    Renewed,
    SleepResult,
    Unavailable,
    Withdrawn,
)


class Store(ABC):
    """A lock store; one per alias and process, shared by threads, safe across fork."""

    #: Alias in ``JOBDEDUP_STORES``.
    alias: str
    #: Number of shards.
    shards: int
    #: Whether a dispatch asks for a worker's presence before it locks.
    needs_presence: bool = True
    #: Whether it keeps whole calls, see ``stores/durable.py``.
    durable: bool = False
    #: Whether other processes see it.
    shared: bool = True

    def close(self) -> None:  # noqa: B027 - not every store holds anything
        """Give back what the store holds in this process, connections above all."""

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
    def asleep(self, request: Sleep) -> SleepResult:
        """Let a job that was put off stand in the line of its lock, so that a release may wake it.

        A line has a hundred places, in the order of the first put-off; whoever finds none sleeps all the
        same. No promise rests on it: a sleeping message comes by itself.
        """

    @abstractmethod
    def renew(self, tokens: Sequence[Token]) -> list[Renewed | Lost | Unavailable]:
        """Move the leases of running deliveries to now + lease."""

    @abstractmethod
    def finish(self, request: Finish) -> FinishResult:
        """Give a running seat back."""

    @abstractmethod
    def reap(self, shard: int, limit: int = 100) -> Reaped | Unavailable:
        """Sweep at most ``limit`` records whose moment of attention has passed: O(lapsed).

        Each record is found by one pass, then again when its next moment comes: for a holder that only
        its message keeps at an age of 5, 10, 20 ... minutes.
        """

    @abstractmethod
    def remove(self, ref: Ref, shown: Holder) -> Withdrawn | Gone | Unavailable:
        """Remove a holder if id, state, since and until are still those that were shown."""

    @abstractmethod
    def inspect(self, ref: Ref, id: str = "") -> Record | Unavailable | None:
        """Return the record, dead holders included, or None; with the marker of ``id``."""

    @abstractmethod
    def list_locks(self, shard: int, after: float = 0.0, limit: int = 100) -> list[Record] | Unavailable:
        """Return records of a shard by rising moment of attention, from ``after`` (epoch seconds)."""

    @abstractmethod
    def counters(self) -> dict[str, dict[str, int]] | Unavailable:
        """Return ``{lock name: {what: number}}``, added up over all processes."""

    @abstractmethod
    def events(self, shard: int, after: str = "", limit: int = 100) -> list[Event] | Unavailable:
        """Return what was abnormal in a shard, oldest first, behind the event whose key is ``after``.

        Capped at about 10,000 a shard, and gone ``JOBDEDUP_GRACE`` after the last one.
        """

    @abstractmethod
    def announce(self, queues: Iterable[str], ttl: float) -> Unavailable | None:
        """Leave the presence key of a worker with this app for each queue, for ``ttl`` seconds."""

    @abstractmethod
    def announced(self, queue: str) -> bool | Unavailable:
        """Say whether a worker with this app has been seen on the queue."""
