"""The stores of the matrix: what is configured, and what can be seen in each from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import redis

from django_jobdedup.conf import conf
from django_jobdedup.dead import dead_jobs
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.handler import DATABASE_STORE, REDIS_STORE, stores
from django_jobdedup.stores.record import Record, Ref
from django_jobdedup.stores.redis.keys import keys_of
from django_jobdedup.stores.redis.store import RedisStore
from tests.crash.cells import REDIS, UNATTENDED

if TYPE_CHECKING:
    from tests.rig.engines import Engine


class ApartRedisStore(RedisStore):
    """A Redis store with keys of its own, so that the maintenance can look after one and not the other."""

    def __init__(self, alias: str, location: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(alias, location, options)
        self.keys = keys_of(f"{conf.NAMESPACE}-{alias}")


def settings_of(engines: Mapping[str, Engine]) -> dict[str, Any]:
    """Give the settings of every process of a world with these databases, by alias of their store."""
    apart = f"{ApartRedisStore.__module__}.{ApartRedisStore.__name__}"
    configured = {
        UNATTENDED: {"BACKEND": REDIS_STORE, "LOCATION": "jobdedup"},
        REDIS: {"BACKEND": apart, "LOCATION": "jobdedup"},
    }
    for alias, engine in engines.items():
        configured[alias] = {"BACKEND": DATABASE_STORE, "LOCATION": engine.alias}
    return {"JOBDEDUP_STORES": configured, "JOBDEDUP_SHARDS": 4, "DATABASE_ROUTERS": []}


class Shelf:
    """One store, seen from outside; ``graves`` is the database of its dead rows."""

    def __init__(self, alias: str, client: redis.Redis, graves: str) -> None:
        self._store: Store = stores[alias]
        self._graves = graves
        self._client = client
        if isinstance(self._store, RedisStore):
            for text in self._store.line.scripts.text.values():
                client.script_load(text)  # so that no first use needs two round trips
        self.offset = self._measure_offset()

    @property
    def durable(self) -> bool:
        """Whether it keeps calls."""
        return self._store.durable

    def inspect(self, ref: Ref, id: str = "") -> Record | None:
        """Ask for a record."""
        record = self._store.inspect(ref, id)
        assert record is None or isinstance(record, Record), record
        return record

    def events(self, ref: Ref) -> list[tuple[str, str]]:
        """What it noted about one lock: (id, what)."""
        found = self._store.events(ref.shard, limit=10_000)
        assert isinstance(found, list), found
        return [(event.id, event.what) for event in found if event.ref == ref]

    def dead(self, *ids: str) -> set[str]:
        """Say which of these jobs are on the list of the dead."""
        return {id for id in ids if dead_jobs(self._graves).filter(token=id).exists()}

    def indexed(self, ref: Ref) -> bool:
        """Say whether the index of the shard still names a lock."""
        if not isinstance(self._store, RedisStore):
            return False  # the rows are the index
        index = self._store.keys.shards[ref.shard].index
        return self._client.zscore(index, ref.fingerprint) is not None

    def _measure_offset(self) -> float:
        """The store's clock minus ours; the quickest of some answers is the truest."""
        samples = []
        for _ in range(50):
            before = time.monotonic()
            now = self._now()
            after = time.monotonic()
            samples.append((after - before, now - (before + after) / 2))
        return min(samples)[1]

    def _now(self) -> float:
        if self.durable:
            now: Any = self._store.now()  # type: ignore[attr-defined]
            return float(now)
        seconds, micros = self._client.time()
        return float(seconds + micros / 1e6)
