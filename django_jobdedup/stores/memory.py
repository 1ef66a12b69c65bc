"""The memory store: for the tests of one process. Same answers as Redis, no server, a clock to move."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured

from django_jobdedup import signals
from django_jobdedup.conf import conf
from django_jobdedup.stores import results
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.clock import Clock, milliseconds
from django_jobdedup.stores.inprocess import running, sleeping, upkeep, waiting
from django_jobdedup.stores.inprocess.step import Shelf, Step
from django_jobdedup.stores.record import Holder, Record, Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Sleep, Token, Withdraw
from django_jobdedup.stores.results import Unavailable

T = TypeVar("T")


class MemoryStore(Store):
    """Locks in the memory of the process that made the store; threads share it.

    A forked child gets ``Unavailable``: its locks would be nobody's. ``clock`` can be moved
    (``store.clock.advance(60)``); ``location`` and ``options`` are there for the form and stay empty.
    """

    needs_presence = False
    shared = False

    def __init__(
        self,
        alias: str = "default",
        location: str = "",
        options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if location or options:
            raise ImproperlyConfigured(
                f"JOBDEDUP_STORES[{alias!r}]: the memory store takes no LOCATION and no OPTIONS."
            )
        self.alias = alias
        self.shards = conf.SHARDS
        self.clock = clock or Clock()
        self._grace, self._pending = milliseconds(conf.GRACE), milliseconds(conf.CONFIRM_WITHIN)
        self._shelves: defaultdict[int, Shelf] = defaultdict(Shelf)
        self._workers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def acquire_many(self, requests: Sequence[Acquire]) -> list[results.AcquireResult]:
        """Ask for waiting seats."""
        return self._each("acquire", [(r.ref.shard, partial(waiting.acquire, request=r)) for r in requests])

    def confirm(
        self, seats: Sequence[tuple[Ref, str]]
    ) -> list[results.Confirmed | results.Gone | Unavailable]:
        """Say that the messages of these seats exist."""
        works = [(ref.shard, partial(waiting.confirm, ref=ref, id=id)) for ref, id in seats]
        return self._each("confirm", works)

    def withdraw(self, request: Withdraw) -> results.Withdrawn | results.Owed | results.Gone | Unavailable:
        """Give a waiting seat back."""
        return self._do("withdraw", request.ref.shard, lambda step: waiting.withdraw(step, request))

    def claim(self, request: Claim) -> results.ClaimResult:
        """Ask for a running seat."""
        return self._do("claim", request.ref.shard, lambda step: running.claim(step, request))

    def asleep(self, request: Sleep) -> results.SleepResult:
        """Let a job that was put off stand in the line of its lock."""
        return self._do("asleep", request.ref.shard, lambda step: sleeping.asleep(step, request))

    def renew(self, tokens: Sequence[Token]) -> list[results.Renewed | results.Lost | Unavailable]:
        """Move the leases of running deliveries."""
        return self._each("renew", [(t.ref.shard, partial(running.renew, token=t)) for t in tokens])

    def finish(self, request: Finish) -> results.FinishResult:
        """Give a running seat back."""
        return self._do("finish", request.token.ref.shard, lambda step: running.finish(step, request))

    def reap(self, shard: int, limit: int = 100) -> results.Reaped | Unavailable:
        """Sweep what has lapsed in a shard."""
        return self._do("reap", shard, lambda step: upkeep.reap(step, limit, self._pending))

    def remove(self, ref: Ref, shown: Holder) -> results.Withdrawn | results.Gone | Unavailable:
        """Remove a holder if it is still the one that was shown."""
        return self._do("remove", ref.shard, lambda step: upkeep.remove(step, ref, shown))

    def inspect(self, ref: Ref, id: str = "") -> Record | Unavailable | None:
        """Return the record as it is, with the marker of ``id``."""
        return self._do("inspect", ref.shard, lambda step: upkeep.inspect(step, ref, id))

    def list_locks(self, shard: int, after: float = 0.0, limit: int = 100) -> list[Record] | Unavailable:
        """Return records of a shard by rising moment of attention."""
        return self._do("list", shard, lambda step: upkeep.list_locks(step, after, limit))

    def counters(self) -> dict[str, dict[str, int]] | Unavailable:
        """Return ``{lock name: {what: number}}`` over all shards."""

        def add_up(_: Step) -> dict[str, dict[str, int]]:
            numbers: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
            for shelf in self._shelves.values():
                for (name, what), number in shelf.counters.items():
                    numbers[name][what] += number
            return {name: dict(counted) for name, counted in numbers.items()}

        return self._do("counters", 0, add_up)

    def events(self, shard: int, after: str = "", limit: int = 100) -> list[results.Event] | Unavailable:
        """Return what was abnormal in a shard, oldest first."""

        def read(step: Step) -> list[results.Event]:
            found = list(step.shelf.events)
            keys = [event.key for event in found]
            return found[keys.index(after) + 1 if after in keys else 0 :][:limit]

        return self._do("events", shard, read)

    def announce(self, queues: Iterable[str], ttl: float) -> Unavailable | None:
        """Leave the presence of a worker for each queue."""

        def leave(step: Step) -> None:
            self._workers.update(dict.fromkeys(queues, step.now + milliseconds(ttl)))

        return self._do("announce", 0, leave)

    def announced(self, queue: str) -> bool | Unavailable:
        """Say whether a worker with this app has been seen on the queue."""
        return self._do("announced", 0, lambda step: self._workers.get(queue, 0) > step.now)

    def _do(self, verb: str, shard: int, work: Callable[[Step], T]) -> T | Unavailable:
        return self._each(verb, [(shard, work)])[0]

    def _each(self, verb: str, works: Sequence[tuple[int, Callable[[Step], T]]]) -> list[T | Unavailable]:
        """Take one atomic step over all, in the process that made the store and in no other."""
        if os.getpid() != self._pid:
            return [self._refuse(verb)] * len(works)
        with self._lock:
            micros = self.clock.micros()
            return [work(self._step(shard, micros)) for shard, work in works]

    def _step(self, shard: int, micros: int) -> Step:
        step = Step(self._shelves[shard], micros, self._grace)
        step.shelf.forget(step.now)
        return step

    def _refuse(self, verb: str) -> Unavailable:
        error = (
            f"the memory store of process {self._pid} was used in process {os.getpid()}: it serves one "
            "process only; name a Redis store in JOBDEDUP_STORES"
        )
        signals.send(signals.store_unavailable, None, store=self.alias, verb=verb, error=error)
        return Unavailable(error)
