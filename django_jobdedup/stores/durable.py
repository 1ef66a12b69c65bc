"""The contract of a store that keeps whole calls: its holders are rows that say "this must run".

Such a row is an intent from the moment it is written: neither a process that dies between the
reservation and the publish nor a broker that is down loses it. In a caller's transaction the row is
written without a seat; whether it gets one is decided after the outermost commit, because a unique key
that is taken inside an open transaction blocks every equal caller, and a refusal given before the other
side's commit may hide its data from the run.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from django_jobdedup.stores.base import Store
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import Gone, Unavailable

#: What an intent is, for people; see ``docs/reference/intents.md``.
State = Literal["pending", "published", "running", "done", "failed", "lost", "dead", "superseded"]


@dataclass(frozen=True, slots=True)
class Intent:
    """A call that somebody has to decide or publish.

    ``decided`` False: written in a transaction, without a seat so far. ``call`` is the stored call with
    the newest arguments, ``n`` the attempt to publish it as, ``attempts`` how often that has failed.
    ``published``: a message of it was out, and nothing was heard of it for its TTL; ``copies``: how often.
    ``joined``: it has the arguments of a call that has joined it, which its message has not.
    """

    ref: Ref
    id: str
    n: int
    name: str
    call: bytes
    decided: bool
    attempts: int = 0
    published: bool = False
    copies: int = 0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a stored call: its state, the token of the job that covers it, why it is dead.

    A dead one is covered where a holder refused it.
    """

    state: State
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A stored call that was found by its task id: its address, its token, what became of it."""

    ref: Ref
    id: str
    fate: Fate


class DurableStore(Store):
    """A store of intents; see the module."""

    durable = True

    @abstractmethod
    def in_transaction(self) -> bool:
        """Say whether this thread has an open transaction on the store's database."""

    @property
    @abstractmethod
    def using(self) -> str:
        """The alias of the database in which the store lives."""

    @abstractmethod
    def transaction(self) -> object:
        """Return a mark of the open transaction and of its innermost savepoint.

        Two marks are equal as long as there is no way to roll one back without the other.
        """

    @abstractmethod
    def after_commit(self, action: Callable[[], None]) -> None:
        """Call ``action`` after the outermost commit of that transaction; never after a rollback."""

    @abstractmethod
    def defer(self, requests: Sequence[Acquire]) -> None:
        """Write intents without seats into the open transaction; each carries its ``call``.

        Raises what the database raises: the transaction is the caller's, and he must know.
        """

    @abstractmethod
    def due(self, limit: int = 100) -> list[Intent] | Unavailable:
        """Take at most ``limit`` intents whose time has come, in order of acceptance.

        Undecided ones, unconfirmed ones, overdue ones. Each is handed to one caller at a time and again
        only after ``JOBDEDUP_CONFIRM_WITHIN``, unless it was confirmed, claimed or resolved by then.
        Of one fingerprint no later intent is handed out while an earlier one is in another's hands.
        """

    @abstractmethod
    def take(self, seats: Sequence[tuple[Ref, str]]) -> list[bool] | Unavailable:
        """Take deferred intents, each (record, id), whose commit was a moment ago; say which, in order.

        Only those that nobody has decided and no relay was handed. They come from ``due`` as if it had
        handed them out now.
        """

    @abstractmethod
    def supersede(self, refused: Sequence[tuple[Ref, str, str]]) -> Unavailable | None:
        """Settle undecided intents as ``superseded``: (record, id, token of the holder that refused it)."""

    @abstractmethod
    def resolve(
        self, ref: Ref, id: str, state: State, *, by: str = "", reason: str = ""
    ) -> Gone | Unavailable | None:
        """Settle an intent that holds no seat: ``superseded`` by a holder, ``published`` without a lock.

        ``dead`` and ``lost`` also take its waiting seat away, if it has one. None when it is done, also when
        it is repeated; ``Gone`` when there is no such intent, or it has started.
        """

    @abstractmethod
    def give_back(self, seats: Sequence[tuple[Ref, str]]) -> int | Unavailable:
        """Make intents due now, each (record, id), whose caller knows that he could not publish them.

        Return how many: one that is published by now, has started or has ended is left alone.
        """

    @abstractmethod
    def missed(self, ref: Ref, id: str, reason: str, retry_in: float) -> int | Gone | Unavailable:
        """Note that an intent could not be published; return how often that has happened.

        It comes again from ``due`` after ``retry_in`` seconds.
        """

    @abstractmethod
    def fate(self, ref: Ref, id: str) -> Fate | Unavailable | None:
        """Return what became of a stored call; None when its row is gone."""

    @abstractmethod
    def now(self) -> float | Unavailable:
        """Return the time by the clock of the store's database, epoch seconds."""

    @abstractmethod
    def seek(self, id: str) -> Found | Unavailable | None:
        """Return the newest stored call with this Celery task id; None when there is none.

        For a process that has nothing but the id.
        """
