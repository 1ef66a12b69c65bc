"""The reaper beside a million locks in use: it does as much as beside none (what it sweeps decides)."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from django_jobdedup.recovery.duty import never
from django_jobdedup.recovery.lost_runs import readers
from django_jobdedup.recovery.periodic import NAME
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record, Ref
from django_jobdedup.stores.redis.store import RedisStore
from testproject.embedded_redis import EmbeddedRedis

from .conftest import Locks

LIVE, LAPSED, SHARDS = 1_000_000, 10, 4
BATCH = 2_500
"""Records that one script copies."""
SLOW = 50_000
"""Microseconds from which the server notes a command as slow."""
HOUR = 3600.0

#: Copies one record under many fingerprints, each with a holder of its own. KEYS: the record, the index.
#: ARGV: its fingerprint, the first and the last number of the copies.
COPY = """
local record = redis.call('GET', KEYS[1])
local life, score = redis.call('PTTL', KEYS[1]), redis.call('ZSCORE', KEYS[2], ARGV[1])
local from, to = string.find(record, 'held%-%d+')
local before, behind = string.sub(record, 1, from - 1), string.sub(record, to + 1)
local start = string.sub(KEYS[1], 1, -65)
for number = ARGV[2], ARGV[3] do
  local fingerprint = string.format('%064x', number)
  redis.call('SET', start .. fingerprint, before .. string.format('held-%09d', number) .. behind, 'PX', life)
  redis.call('ZADD', KEYS[2], score, fingerprint)
end
"""


@pytest.fixture
def store(settings: Any, lock_server: EmbeddedRedis) -> RedisStore:
    """A Redis store on a server of its own, whose end is the end of a million keys."""
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": lock_server.url}
    settings.CACHES = {**settings.CACHES, "jobdedup": cache}
    settings.JOBDEDUP_SHARDS = SHARDS
    readers.reset()
    store = stores["default"]
    assert isinstance(store, RedisStore)
    return store


@pytest.fixture
def client(lock_server: EmbeddedRedis) -> Any:
    """A client of that server."""
    with redis.Redis.from_url(lock_server.url, decode_responses=True) as client:
        client.config_set("slowlog-log-slower-than", SLOW)
        yield client


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_pass_costs_beside_a_million_locks_what_it_costs_alone(
    store: RedisStore, client: redis.Redis
) -> None:
    commands_of_a_pass(store, client, LAPSED)  # the scripts are loaded
    beside_none = commands_of_a_pass(store, client, LAPSED)
    fill(store, client)

    beside_a_million = commands_of_a_pass(store, client, LAPSED)
    of_twice_as_many = commands_of_a_pass(store, client, 2 * LAPSED)

    assert beside_a_million == beside_none
    assert sum(beside_a_million.values()) < 20 * LAPSED + 10 * SHARDS
    assert sum(of_twice_as_many.values()) < 2 * sum(beside_a_million.values())
    assert indexed(client, store) == LIVE
    memory: dict[str, Any] = client.info("memory")  # type: ignore[assignment]
    print(f"{LIVE:,} locks take {memory['used_memory_human']}, a pass makes {beside_a_million}")


def commands_of_a_pass(store: RedisStore, client: redis.Redis, lapsed: int) -> dict[str, int]:
    """Let runs lapse, and count what the server executes while they are reaped, inside of scripts too.

    Nothing of it takes the server long.
    """
    locks = Locks(store, NAME)
    for number in range(lapsed):
        locks.run(f"lapsed-{number}", Ref(number % SHARDS, f"{LIVE + number:064x}"), lease=0.001)
    time.sleep(0.02)  # all of them have lapsed
    client.config_resetstat()
    client.slowlog_reset()
    assert reap(never) == {"lost": lapsed}
    stats: dict[str, Any] = client.info("commandstats")  # type: ignore[assignment]
    assert client.slowlog_get() == []
    return {
        name.removeprefix("cmdstat_"): numbers["calls"]
        for name, numbers in stats.items()
        if not name.startswith(("cmdstat_config", "cmdstat_slowlog"))
    }


def fill(store: RedisStore, client: redis.Redis) -> None:
    """Hold a million locks, half of them waiting, half running: the store takes some, the rest are copies."""
    copy, each = client.register_script(COPY), LIVE // SHARDS
    for shard in range(SHARDS):
        first, middle, last = shard * each, shard * each + each // 2, (shard + 1) * each
        locks = Locks(store, "held")
        locks.wait(held(first), Ref(shard, f"{first:064x}"), ttl=HOUR)
        locks.run(held(middle), Ref(shard, f"{middle:064x}"), lease=HOUR)
        keys = store.keys.shards[shard]
        for origin, end in ((first, middle), (middle, last)):
            fingerprint = f"{origin:064x}"
            for start in range(origin + 1, end, BATCH):
                words = (fingerprint, start, min(start + BATCH, end) - 1)
                copy(keys=[keys.lock + fingerprint, keys.index], args=words)
        for number, state in ((middle - 1, "W"), (last - 1, "R")):
            record = store.inspect(Ref(shard, f"{number:064x}"))
            assert isinstance(record, Record)
            assert [(holder.id, holder.state) for holder in record.holders] == [(held(number), state)]


def held(number: int) -> str:
    """Give the id of a holder; all are of one length."""
    return f"held-{number:09}"


def indexed(client: redis.Redis, store: RedisStore) -> int:
    """Count the locks in all indexes."""
    return sum(int(client.zcard(store.keys.shards[shard].index)) for shard in range(SHARDS))  # type: ignore[arg-type]
