"""The database store: intents, holders and markers are rows of one table, decided by unique columns."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db.transaction import on_commit

from django_jobdedup.conf import conf
from django_jobdedup.models import JobIntent
from django_jobdedup.outcomes import How
from django_jobdedup.stores import results
from django_jobdedup.stores.breaker import Breaker
from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.database import after_commit, bulk, deferring, leases, looking, outgoing, waking
from django_jobdedup.stores.database.line import Line, is_open
from django_jobdedup.stores.database.location import check_connection, check_location
from django_jobdedup.stores.database.purpose import Purpose
from django_jobdedup.stores.database.transactions import Mark
from django_jobdedup.stores.database.verbs import Verbs
from django_jobdedup.stores.database.view import listed
from django_jobdedup.stores.durable import DurableStore, Fate, Found, Intent, State
from django_jobdedup.stores.inprocess import running, sleeping, upkeep, waiting
from django_jobdedup.stores.leaving import at_end
from django_jobdedup.stores.options import read_pauses
from django_jobdedup.stores.record import Holder, Record, Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Sleep, Token, Withdraw
from django_jobdedup.stores.results import Unavailable


class DatabaseStore(DurableStore):
    """Locks and stored calls in the database alias ``location``; empty: where the routers write intents.

    Options: ``pause`` and ``max_pause``, the seconds for which a database that failed is left alone.
    ``clock`` gives an SQL expression, microseconds since the epoch, in the place of the server's clock.
    Raises ImproperlyConfigured for other options or values, an unknown alias, an engine that is not
    supported.
    """

    def __init__(
        self,
        alias: str,
        location: str = "",
        options: Mapping[str, Any] | None = None,
        clock: Callable[[], str] | None = None,
    ) -> None:
        pauses = read_pauses(alias, options)
        check_location(alias, location)
        self.alias = alias
        self.shards = conf.SHARDS
        self.line = Line(alias, location, Breaker(*pauses), clock)
        self.verbs = Verbs(self.line, milliseconds(conf.GRACE))
        self._pending = milliseconds(conf.CONFIRM_WITHIN)
        #: How long an ended id is remembered at least, seconds: its row stays anyway, and the relay may have
        #: published more messages of it than the first, which come behind any backlog.
        self.remembers = conf.RETENTION
        _stores.add(self)

    def check_engine(self) -> None:
        """Raise ImproperlyConfigured if the routers lead to where the store cannot work."""
        check_connection(self.alias, self.line.connection)

    def has_tables(self) -> bool:
        """Say whether the tables are there; asks the database, and raises what it raises."""
        connection = self.line.connection
        with connection.cursor() as cursor:
            return JobIntent._meta.db_table in connection.introspection.table_names(cursor)

    def close(self) -> None:
        """Forget the numbers that nobody has written yet; the connections are Django's."""
        self.verbs.tally.reset()

    # --- a dispatch ---

    def acquire_many(self, requests: Sequence[Acquire]) -> list[results.AcquireResult]:
        """Ask for waiting seats, in one order for all callers."""
        return bulk.acquire_many(self.verbs, requests)

    def acquire(self, request: Acquire) -> results.AcquireResult:
        """Ask for one waiting seat."""
        return bulk.acquire(self.verbs, request)

    def confirm(
        self, seats: Sequence[tuple[Ref, str]]
    ) -> list[results.Confirmed | results.Gone | Unavailable]:
        """Say that the messages of these seats exist; one statement where all were reserved."""
        answers: list[Any] = []
        for start in range(0, len(seats), leases.BATCH):
            batch = seats[start : start + leases.BATCH]
            number = self.line.run("confirm", partial(leases.confirm, seats=batch))
            if isinstance(number, Unavailable):
                answers += [number] * len(batch)
            elif number == len(batch):
                answers += [results.Confirmed()] * number
            else:
                answers += [self._confirm(ref, id) for ref, id in batch]
        return answers

    def _confirm(self, ref: Ref, id: str) -> results.Confirmed | results.Gone | Unavailable:
        return self.verbs.take(ref, Purpose("confirm", id), partial(waiting.confirm, ref=ref, id=id))

    def withdraw(self, request: Withdraw) -> results.Withdrawn | results.Owed | results.Gone | Unavailable:
        """Give a waiting seat back."""
        if request.waiting:
            request = replace(request, marker_ttl=max(request.marker_ttl, self.remembers))
        purpose = Purpose("withdraw", request.id, reason=request.reason, by=request.by)
        return self.verbs.take(request.ref, purpose, partial(waiting.withdraw, request=request))

    # --- an execution ---

    def claim(self, request: Claim) -> results.ClaimResult:
        """Ask for a running seat."""
        purpose = Purpose("claim", request.id, name=request.name, gated=request.gate > 0)
        return self.verbs.take(request.ref, purpose, partial(running.claim, request=request))

    def asleep(self, request: Sleep) -> results.SleepResult:
        """Let a job that was put off stand in the line of its lock, if its row keeps its call."""
        purpose = Purpose("asleep", request.id)
        return self.verbs.take(request.ref, purpose, partial(sleeping.asleep, request=request))

    def renew(self, tokens: Sequence[Token]) -> list[results.Renewed | results.Lost | Unavailable]:
        """Move leases, past those whose rows are locked by an open transaction."""
        return leases.renew_all(self.line, tokens)

    def finish(self, request: Finish) -> results.FinishResult:
        """Give a running seat back."""
        request = replace(request, marker_ttl=max(request.marker_ttl, self.remembers))
        ends = request.how in (How.RELEASE, How.KEEP)
        purpose = Purpose(
            "finish" if ends else "handover", request.token.id, name=request.name, reason=request.reason,
            call=request.unsent, renewed=request.unsent is not None,
        )  # fmt: skip
        answer = self.verbs.take(request.token.ref, purpose, partial(running.finish, request=request))
        return waking.with_call(self.line, answer)

    # --- upkeep ---

    def reap(self, shard: int, limit: int = 100) -> results.Reaped | Unavailable:
        """Sweep what has lapsed in a shard, record by record."""
        refs = self.line.run("reap", partial(looking.lapsed, shard=shard, limit=limit))
        if isinstance(refs, Unavailable):
            return refs
        found: list[results.Reaped] = []
        for ref in refs:
            answer = self.verbs.take(
                ref, Purpose("reap"), partial(upkeep.reap, limit=1, pending=self._pending)
            )
            if isinstance(answer, Unavailable):
                return answer if not found else _joined(found)
            found.append(waking.with_calls(self.line, answer))
        return _joined(found)

    def remove(self, ref: Ref, shown: Holder) -> results.Withdrawn | results.Gone | Unavailable:
        """Remove a holder if it is still the one that was shown."""
        return self.verbs.take(ref, Purpose("remove", shown.id), partial(upkeep.remove, ref=ref, shown=shown))

    def inspect(self, ref: Ref, id: str = "") -> Record | Unavailable | None:
        """Return the record as it is, with the marker of ``id``."""
        return self.verbs.take(ref, Purpose("inspect", id), partial(upkeep.inspect, ref=ref, id=id))

    def list_locks(self, shard: int, after: float = 0.0, limit: int = 100) -> list[Record] | Unavailable:
        """Return records of a shard by rising moment of attention."""
        found = self.line.run("list", partial(looking.by_attention, shard=shard, after=after, limit=limit))
        if isinstance(found, Unavailable):
            return found
        return self.line.run("list", partial(listed, found=found))

    def counters(self) -> dict[str, dict[str, int]] | Unavailable:
        """Return ``{lock name: {what: number}}``; other processes may still hold numbers of some seconds."""
        self.verbs.tally.flush()
        return self.line.run("counters", looking.counters)

    def events(self, shard: int, after: str = "", limit: int = 100) -> list[results.Event] | Unavailable:
        """Return what was abnormal in a shard, oldest first, until retention deletes it."""
        return self.line.run("events", partial(looking.events, shard=shard, after=after, limit=limit))

    def announce(self, queues: Iterable[str], ttl: float) -> Unavailable | None:
        """Leave the presence of a worker for each queue."""
        return self.line.run("announce", partial(looking.announce, queues=list(queues), ttl=ttl))

    def announced(self, queue: str) -> bool | Unavailable:
        """Say whether a worker with this app has been seen on the queue."""
        return self.line.run("announced", partial(looking.announced, queue=queue))

    # --- intents ---

    @property
    def using(self) -> str:
        """Return the alias of the database."""
        return self.line.using

    def in_transaction(self) -> bool:
        """Say whether this thread has an open transaction on the store's database."""
        return is_open(self.line.connection)

    def transaction(self) -> object:
        """Return a mark of the open transaction and of its innermost savepoint."""
        return Mark.of(self.line.connection)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call ``action`` after the outermost commit; with transactions by hand the relay does the work."""
        if self.line.connection.in_atomic_block:
            on_commit(action, using=self.using)  # robust would swallow the soft time limit of a body

    def defer(self, requests: Sequence[Acquire]) -> None:
        """Write intents without seats into the open transaction."""
        self.line.raw(partial(deferring.defer, requests=requests, pending=self._pending))

    def due(self, limit: int = 100) -> list[Intent] | Unavailable:
        """Take intents whose time has come."""
        return self.line.run("due", partial(outgoing.due, limit=limit, pending=self._pending))

    def take(self, seats: Sequence[tuple[Ref, str]]) -> list[bool] | Unavailable:
        """Take intents that a commit has just made visible."""
        taken: list[bool] = []
        for start in range(0, len(seats), after_commit.BATCH):
            some = seats[start : start + after_commit.BATCH]
            answer = self.line.run("take", partial(after_commit.take, seats=some, pending=self._pending))
            if isinstance(answer, Unavailable):
                return answer
            taken += answer
        return taken

    def supersede(self, refused: Sequence[tuple[Ref, str, str]]) -> Unavailable | None:
        """Settle intents that were refused, in one statement for many."""
        for start in range(0, len(refused), after_commit.BATCH):
            some = refused[start : start + after_commit.BATCH]
            told = self.line.run("supersede", partial(after_commit.supersede, refused=some))
            if isinstance(told, Unavailable):
                return told
        return None

    def resolve(
        self, ref: Ref, id: str, state: State, *, by: str = "", reason: str = ""
    ) -> results.Gone | Unavailable | None:
        """Settle an intent that holds no seat."""
        return self.line.run(
            "resolve", partial(outgoing.resolve, ref=ref, id=id, state=state, by=by, reason=reason)
        )

    def give_back(self, seats: Sequence[tuple[Ref, str]]) -> int | Unavailable:
        """Make unpublished intents due now."""
        return self.line.run("give_back", partial(outgoing.give_back, seats=seats))

    def missed(self, ref: Ref, id: str, reason: str, retry_in: float) -> int | results.Gone | Unavailable:
        """Note that an intent could not be published."""
        work = partial(outgoing.missed, ref=ref, id=id, reason=reason, retry_in=milliseconds(retry_in))
        return self.line.run("missed", work)

    def fate(self, ref: Ref, id: str) -> Fate | Unavailable | None:
        """Return what became of a stored call."""
        return self.line.run("fate", partial(outgoing.fate, ref=ref, id=id))

    def now(self) -> float | Unavailable:
        """Return the time by the clock of the database."""
        now = self.line.run("now", looking.now_of)
        return now if isinstance(now, Unavailable) else now / 1000

    def seek(self, id: str) -> Found | Unavailable | None:
        """Return the newest stored call with this task id."""
        return self.line.run("seek", partial(outgoing.seek, id=id))


def _joined(found: list[results.Reaped]) -> results.Reaped:
    return results.Reaped(
        tuple(lapse for reaped in found for lapse in reaped.lapses),
        tuple(overdue for reaped in found for overdue in reaped.overdue),
        tuple(doubt for reaped in found for doubt in reaped.doubtful),
        tuple(waiter for reaped in found for waiter in reaped.waiters),
    )


_stores: weakref.WeakSet[DatabaseStore] = weakref.WeakSet()


def _flush_all() -> None:
    for store in list(_stores):
        store.verbs.tally.flush()


def _forget_all() -> None:
    for store in list(_stores):
        store.verbs.tally.reset()


at_end("stores.database", _flush_all)
os.register_at_fork(after_in_child=_forget_all)
