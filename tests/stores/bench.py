"""A store on a bench: its clock in our hand, short words for its verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redis import Redis

from django_jobdedup.models import JobIntent
from django_jobdedup.outcomes import How
from django_jobdedup.stores import results
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.clock import Clock
from django_jobdedup.stores.database.store import DatabaseStore
from django_jobdedup.stores.inprocess.seat import Mark
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.record import Holder, Marker, Record, Ref
from django_jobdedup.stores.redis.keys import keys_of
from django_jobdedup.stores.redis.scripts import Scripts
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Merge, Sleep, Token, Withdraw
from tests.rig.engines import Engine

NOON = 1_800_000_000.0
"""When every test begins, by the store's clock."""

GRACE = 86_400.0
CLOCK_KEY = "test-clock"
CLOCK = f"return tonumber(redis.call('GET', '{CLOCK_KEY}'))"

REF = Ref(7, "f" * 64)
OTHER = Ref(7, "e" * 64)


class Bench(ABC):
    """A store whose clock stands still until ``advance`` moves it."""

    store: Store

    def __init__(self) -> None:
        self.now = NOON

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now = round(self.now + seconds, 6)
        self._advance(seconds)

    @abstractmethod
    def _advance(self, seconds: float) -> None: ...

    def acquire(self, id: str, ref: Ref = REF, **knobs: Any) -> results.AcquireResult:
        """Ask for a waiting seat."""
        return self.store.acquire(Acquire(ref, id, **{"name": "shop.recompute", "by": "web@1", **knobs}))

    def again(self, id: str, **knobs: Any) -> results.AcquireResult:
        """Ask as a retry does."""
        return self.acquire(id, again=True, **knobs)

    def merge(self, id: str, args: bytes, wait: float = 0.0, **knobs: Any) -> results.AcquireResult:
        """Ask as a rerun or, with a wait, as a debounced call does."""
        rule = Merge(wait, knobs.pop("max_wait", None))
        return self.acquire(id, counts="PW", on_waiting="merge", args=args, merge=rule, **knobs)

    def confirm(self, *ids: str, ref: Ref = REF) -> Any:
        """Confirm; the answer of a single one comes bare."""
        answers = self.store.confirm([(ref, id) for id in ids])
        return answers[0] if len(answers) == 1 else answers

    def wait(self, id: str, **knobs: Any) -> None:
        """Acquire and confirm."""
        assert isinstance(self.acquire(id, **knobs), results.Acquired)
        assert self.confirm(id) == results.Confirmed()

    def withdraw(self, id: str, n: int = 0, waiting: bool = False, **more: Any) -> Any:
        """Give a waiting seat back."""
        return self.store.withdraw(Withdraw(REF, id, n, waiting, **more))

    def claim(self, id: str, nonce: str = "one", n: int = 0, **knobs: Any) -> Any:
        """Ask for a running seat."""
        ref = knobs.pop("ref", REF)
        return self.store.claim(
            Claim(ref, id, n, nonce, **{"name": "shop.recompute", "by": "worker@1", **knobs})
        )

    def run(self, id: str, nonce: str = "one", **knobs: Any) -> results.Claimed:
        """Claim, and insist."""
        answer = self.claim(id, nonce, **knobs)
        assert isinstance(answer, results.Claimed), answer
        return answer

    def lie_down(self, id: str, n: int = 0, **more: Any) -> Any:
        """Stand in the line with ``id`` as one's call; a durable store has it in the row already."""
        call = None if self.store.durable else id.encode()
        return self.store.asleep(Sleep(REF, id, n, **{"call": call, **more}))

    def renew(self, id: str, nonce: str = "one", lease: float = 30.0) -> Any:
        """Renew one lease."""
        return self.store.renew([Token(REF, id, nonce, lease)])[0]

    def finish(self, id: str, nonce: str = "one", how: How = How.RELEASE, n: int = 0, **more: Any) -> Any:
        """Give a running seat back."""
        return self.store.finish(Finish(Token(REF, id, nonce), n, how, **{"name": "shop.recompute", **more}))

    def reap(self, **more: Any) -> results.Reaped:
        """Sweep the shard of REF."""
        answer = self.store.reap(REF.shard, **more)
        assert isinstance(answer, results.Reaped)
        return answer

    def sweep(self) -> results.Reaped:
        """Sweep the shard of REF and say what is overdue, by id; leave out what is doubtful.

        That is advice, and the stores may come to it at different moments.
        """
        found = self.reap()
        overdue = sorted([*found.overdue, *self.due()], key=lambda each: each.id)
        return replace(found, overdue=tuple(overdue), doubtful=())

    def due(self) -> list[results.Overdue]:
        """Take what a durable store has a relay for."""
        return []

    def record(self, id: str = "") -> Record | None:
        """Look at the record."""
        answer = self.store.inspect(REF, id)
        assert not isinstance(answer, results.Unavailable)
        return answer

    def holders(self) -> tuple[Holder, ...]:
        """Look at the holders."""
        record = self.record()
        return record.holders if record else ()

    def states(self) -> dict[str, str]:
        """Look at who is in which state."""
        return {holder.id: holder.state for holder in self.holders()}

    def holder(self, id: str) -> Holder:
        """Look at one holder."""
        return next(holder for holder in self.holders() if holder.id == id)

    def marker(self, id: str) -> Marker | None:
        """Look at the marker of an id."""
        record = self.record(id)
        return record.marker if record else None

    @abstractmethod
    def forget(self) -> None:
        """Lose everything but the clock, as a store that was flushed."""

    @abstractmethod
    def mark_superseded(self, id: str, by: str) -> None:
        """Leave the marker of a superseded id, for a minute, whatever seat it has."""

    def events(self) -> list[tuple[str, str]]:
        """Return what happened to whom."""
        answer = self.store.events(REF.shard, limit=1000)
        assert not isinstance(answer, results.Unavailable)
        return [(event.what, event.id) for event in answer]

    def counted(self, name: str = "shop.recompute") -> dict[str, int]:
        """Return the counters of a lock name."""
        answer = self.store.counters()
        assert not isinstance(answer, results.Unavailable)
        return answer.get(name, {})


class MemoryBench(Bench):
    """The memory store."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock(NOON)
        self.store = MemoryStore(clock=self.clock)

    def _advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def forget(self) -> None:
        """Lose everything but the clock."""
        self.store = MemoryStore(clock=self.clock)

    def mark_superseded(self, id: str, by: str) -> None:
        """Leave the marker of a superseded id."""
        self.store._shelves[REF.shard].marks[id] = Mark(round((self.now + 60) * 1000), by=by)


class RedisBench(Bench):
    """The Redis store of a cache alias; its scripts read the time from a key."""

    def __init__(self, client: Redis, alias: str, edit: Callable[[str, str], str] | None = None) -> None:
        super().__init__()
        self.client = client
        self.store: RedisStore = RedisStore("default", alias, scripts=Scripts(GRACE, CLOCK, edit))
        self.clear()

    def clear(self) -> None:
        """Begin anew: an empty server at noon."""
        self.now = NOON
        self.forget()

    def forget(self) -> None:
        """Lose everything but the clock."""
        self.client.flushdb()
        self.client.set(CLOCK_KEY, round(self.now * 1_000_000))

    def _advance(self, seconds: float) -> None:
        self.client.incrby(CLOCK_KEY, round(seconds * 1_000_000))

    def mark_superseded(self, id: str, by: str) -> None:
        """Leave the marker of a superseded id."""
        key = keys_of("jd").shards[REF.shard].mark + id
        pack = "redis.call('SET', KEYS[1], cmsgpack.pack({tonumber(ARGV[1]), -3, ARGV[2]}), 'PX', 60000)"
        self.client.eval(pack, 1, key, str(round((self.now + 60) * 1000)), by)


class DatabaseBench(Bench):
    """The database store on one engine; its statements have our time in the place of the server's."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.store: DatabaseStore = DatabaseStore("default", engine.alias, clock=self._clock)
        self.store.remembers = 0.0  # the contract: as long as the request says
        self.clear()

    def _clock(self) -> str:
        return str(round(self.now * 1_000_000))

    def clear(self) -> None:
        """Begin anew: empty tables at noon."""
        self.now = NOON
        self.forget()

    def forget(self) -> None:
        """Lose everything but the clock."""
        self.store.verbs.tally.reset()
        self.engine.empty()

    def _advance(self, seconds: float) -> None:
        """The clock is ``now`` itself."""

    def due(self) -> list[results.Overdue]:
        """Take the intents: a job that was exhausted, and forgotten since, has left its call in its row."""
        intents = self.store.due()
        assert isinstance(intents, list)
        args = {holder.id: holder.args or b"" for holder in self.holders()}
        return [results.Overdue(each.ref, each.id, each.n, args[each.id], each.name) for each in intents]

    def mark_superseded(self, id: str, by: str) -> None:
        """Leave the marker of a superseded id."""
        rows = JobIntent.objects.using(self.engine.alias).filter(token=id)
        assert rows.update(mark_by=by, mark_until=round((self.now + 60) * 1000))
