"""Stores on a bench, over a Redis that the tests of this room may flush, pause and kill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from django_jobdedup.stores.redis.store import RedisStore
from testproject.embedded_redis import EmbeddedRedis
from tests.rig.engines import Engine

from .bench import CLOCK_KEY, Bench, DatabaseBench, MemoryBench, RedisBench

ALIAS = "locks"
NAMESPACE = "jd"


def cache(url: str, **options: Any) -> dict[str, Any]:
    """Return a django-redis cache as a project writes it."""
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options}


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedRedis]:
    """A Redis of this room's own."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def locks(settings: Any, server: EmbeddedRedis) -> None:
    """Settings under which the alias ``locks`` is that Redis."""
    settings.JOBDEDUP_NAMESPACE = NAMESPACE
    settings.CACHES = {**settings.CACHES, ALIAS: cache(server.url)}


@pytest.fixture
def client(server: EmbeddedRedis, locks: None) -> Iterator[Redis]:
    """A plain client of that Redis, which is empty before; afterwards every key must have an expiry."""
    with Redis.from_url(server.url) as client:
        client.flushdb()
        yield client
        assert_everything_expires(client)


def assert_everything_expires(client: Redis) -> None:
    """Look at every key there is."""
    keys = [key for key in client.scan_iter(count=1000) if key != CLOCK_KEY.encode()]
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.pttl(key)
    forever = [key for key, life in zip(keys, pipeline.execute(), strict=True) if life == -1]
    assert not forever, f"keys without an expiry: {forever[:5]}"


@pytest.fixture
def redis_bench(client: Redis) -> RedisBench:
    """The Redis store, on the bench."""
    return RedisBench(client, ALIAS)


@pytest.fixture
def memory_bench(locks: None) -> MemoryBench:
    """The memory store, on the bench."""
    return MemoryBench()


@pytest.fixture
def sqlite_wal_bench(sqlite_engine: Engine, locks: None) -> Iterator[DatabaseBench]:
    """The database store on SQLite, on the bench."""
    bench = DatabaseBench(sqlite_engine)
    yield bench
    bench.store.close()


@pytest.fixture
def postgresql_bench(postgresql_engine: Engine, locks: None) -> Iterator[DatabaseBench]:
    """The database store on PostgreSQL, on the bench."""
    bench = DatabaseBench(postgresql_engine)
    yield bench
    bench.store.close()


@pytest.fixture
def mariadb_bench(mariadb_engine: Engine, locks: None) -> Iterator[DatabaseBench]:
    """The database store on MariaDB, on the bench."""
    bench = DatabaseBench(mariadb_engine)
    yield bench
    bench.store.close()


@pytest.fixture(params=["memory", "redis", "sqlite_wal", "postgresql", "mariadb"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Each store in turn, the database store on each engine: one contract."""
    bench: Bench = request.getfixturevalue(f"{request.param}_bench")
    return bench


@pytest.fixture(params=["sqlite_wal", "postgresql", "mariadb"])
def database(request: pytest.FixtureRequest) -> DatabaseBench:
    """The database store on each engine in turn."""
    bench: DatabaseBench = request.getfixturevalue(f"{request.param}_bench")
    return bench


@pytest.fixture
def redis_store(client: Redis) -> RedisStore:
    """The Redis store with the server's own clock, as a project has it."""
    return RedisStore("default", ALIAS)
