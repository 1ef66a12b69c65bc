"""The store forgets a lock in the middle of its run: the loser learns it, and its late write is refused.

Case U46 (b, c): a flush, and a replica that is promoted before it had the key. (a) stands in
``tests/test_checks.py``, as does (f); (d) and (e) in ``test_redis_down.py`` and
``tests/executing/test_store_down.py``, (e) with real workers.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis

from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token
from django_jobdedup.stores.results import Acquired, Claimed, Held, Lost, NotMine, Released, Renewed
from testproject.embedded_redis import EmbeddedRedis
from tests.recovery.outage import Wire
from tests.rig.waiting import wait_for

from .conftest import cache

REF = Ref(3, "a" * 64)
SHORT = 2.5
"""Seconds that no question may take: the timeout of the store, a second try, and a little."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary, its replica, and the wire by which clients reach the one of the day."""

    primary: EmbeddedRedis
    replica: EmbeddedRedis
    wire: Wire

    def cut_off(self) -> None:
        """Let the replica hear no more of its primary; it has all that was there before."""
        with Redis.from_url(self.replica.url) as replica, Redis.from_url(self.primary.url) as primary:
            primary.config_set("repl-diskless-sync-delay", 0)
            primary.set("before", 1, ex=60)
            replica.replicaof("127.0.0.1", self.primary.port)
            wait_for(lambda: replica.get("before"), 10, what="the first synchronisation")
            replica.replicaof("NO", "ONE")

    def fail_over(self) -> None:
        """Let the primary die, and the replica be what clients reach."""
        self.primary.stop()
        self.wire.lead_to(self.replica.port)

    def flush(self) -> None:
        """Empty the primary: a server of this test alone."""
        with Redis.from_url(self.primary.url) as primary:
            primary.flushall()


@pytest.fixture
def pair(lock_server: EmbeddedRedis) -> Iterator[Pair]:
    """Two servers of this test's own."""
    with EmbeddedRedis() as replica:
        pair = Pair(lock_server, replica, Wire(lock_server.port))
        pair.cut_off()
        yield pair
        pair.wire.cut()


@pytest.fixture
def store(pair: Pair, settings: Any) -> Iterator[RedisStore]:
    """A store that reaches them by the wire."""
    settings.CACHES = {**settings.CACHES, "mine": cache(f"redis://127.0.0.1:{pair.wire.port}/0")}
    store = RedisStore("default", "mine", {"pause": 0.1, "max_pause": 0.2})
    yield store
    store.close()


def take(store: RedisStore, id: str) -> int:
    """Acquire and claim as soon as the store answers; give the fence. No question takes long."""

    def ask(question: Callable[[], Any], wanted: type) -> Any:
        def once() -> Any:
            begun = time.monotonic()
            answer = question()
            assert time.monotonic() - begun < SHORT
            return answer if isinstance(answer, wanted) else None

        return wait_for(once, 10, what=f"{wanted.__name__} of {id}")

    ask(lambda: store.acquire(Acquire(REF, id)), Acquired)
    fence: int = ask(lambda: store.claim(Claim(REF, id, 0, f"{id}-nonce", lease=30)), Claimed).fence
    return fence


def token(id: str) -> Token:
    """Give the token of its run."""
    return Token(REF, id, f"{id}-nonce", 30)


def write(table: sqlite3.Connection, value: str, fence: int) -> int:
    """Write as the page on late writes says; give the number of rows that were written."""
    return table.execute(
        "UPDATE report SET text = ?, fence = ? WHERE fence <= ?", (value, fence, fence)
    ).rowcount


FORGETS = {"flush": Pair.flush, "fail-over": Pair.fail_over}


@pytest.mark.parametrize("forget", FORGETS.values(), ids=FORGETS)
def test_who_has_lost_its_lock_learns_it_and_cannot_write(
    pair: Pair, store: RedisStore, forget: Callable[[Pair], None]
) -> None:
    with closing(sqlite3.connect(":memory:")) as table:
        table.execute("CREATE TABLE report AS SELECT 'empty' AS text, 0 AS fence")
        first = take(store, "first")
        assert isinstance(store.acquire(Acquire(REF, "second")), Held)
        forget(pair)
        second = take(store, "second")
        assert second > first
        assert write(table, "second", second) == 1
        assert store.renew([token("first")]) == [Lost()]
        assert write(table, "first", first) == 0
        assert isinstance(store.finish(Finish(token("first"), 0)), NotMine), "and nothing raises"
        assert store.renew([token("second")]) == [Renewed()], "nobody has freed another's lock"
        assert isinstance(store.finish(Finish(token("second"), 0)), Released)
        assert table.execute("SELECT text FROM report").fetchall() == [("second",)]
