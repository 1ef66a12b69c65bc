"""A Redis that is slow, dead, full, read only; lost replies on a real wire; forks; empty pools (U46 d, e)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import BlockingConnectionPool, Redis

from django_jobdedup import signals
from django_jobdedup.stores.breaker import Breaker
from django_jobdedup.stores.record import Holder, Ref
from django_jobdedup.stores.redis.client import Client, connect
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token, Withdraw
from django_jobdedup.stores.results import Acquired, Claimed, Released, Unavailable
from testproject.embedded_redis import EmbeddedRedis

from .bench import OTHER, REF
from .conftest import ALIAS, cache
from .proxy import Proxy, answering

FAR = Ref(3, "a" * 64)


@pytest.fixture
def store(lock_server: EmbeddedRedis, settings: Any) -> Iterator[RedisStore]:
    """A store on a Redis of this test's own."""
    settings.CACHES = {**settings.CACHES, "mine": cache(lock_server.url)}
    store = RedisStore("default", "mine", {"pause": 0.2, "max_pause": 0.4})
    yield store
    store.close()


@pytest.fixture
def told() -> Iterator[list[tuple[str, str, str]]]:
    """What the signal ``store_unavailable`` said."""
    heard: list[tuple[str, str, str]] = []

    def listen(sender: object, store: str, verb: str, error: str, **_: Any) -> None:
        heard.append((store, verb, error))

    signals.store_unavailable.connect(listen)
    yield heard
    signals.store_unavailable.disconnect(listen)


VERBS: dict[str, Callable[[RedisStore], Any]] = {
    "acquire": lambda s: s.acquire(Acquire(REF, "a")),
    "acquire many": lambda s: s.acquire_many([Acquire(REF, "a"), Acquire(FAR, "b"), Acquire(OTHER, "c")]),
    "confirm": lambda s: s.confirm([(REF, "a")]),
    "confirm many": lambda s: s.confirm([(REF, "a"), (FAR, "b")]),
    "withdraw": lambda s: s.withdraw(Withdraw(REF, "a")),
    "claim": lambda s: s.claim(Claim(REF, "a", 0, "one")),
    "renew": lambda s: s.renew([Token(REF, "a", "one")]),
    "finish": lambda s: s.finish(Finish(Token(REF, "a", "one"), 0)),
    "reap": lambda s: s.reap(7),
    "remove": lambda s: s.remove(REF, Holder("a", "W")),
    "inspect": lambda s: s.inspect(REF),
    "list": lambda s: s.list_locks(7),
    "counters": lambda s: s.counters(),
    "events": lambda s: s.events(7),
    "announce": lambda s: s.announce(["celery"], 60),
    "announced": lambda s: s.announced("celery"),
}


def assert_unavailable(answer: Any) -> None:
    """Insist on Unavailable, for each of many."""
    answers = answer if isinstance(answer, list) else [answer]
    assert answers
    assert all(isinstance(one, Unavailable) for one in answers), answer


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_answers_when_nobody_listens(
    store: RedisStore, lock_server: EmbeddedRedis, verb: str
) -> None:
    store.line.breaker = Breaker(pause=60, max_pause=60)
    lock_server.stop()
    assert_unavailable(VERBS[verb](store))
    assert store.line.breaker.refuses()
    assert_unavailable(VERBS[verb](store))


def test_a_store_that_comes_back_is_used_again(store: RedisStore, lock_server: EmbeddedRedis) -> None:
    """It comes back empty: without scripts too."""
    store.acquire(Acquire(REF, "a"))
    lock_server.stop()
    assert_unavailable(store.acquire(Acquire(REF, "b")))
    lock_server.start()
    time.sleep(0.25)
    assert isinstance(store.acquire(Acquire(REF, "b")), Acquired)


def test_a_dead_server_does_not_pile_up_connections(store: RedisStore, lock_server: EmbeddedRedis) -> None:
    store.acquire(Acquire(REF, "a"))
    lock_server.stop()
    for _ in range(20):
        store.line.breaker.worked()
        assert_unavailable(store.acquire(Acquire(REF, "a")))
    pool = store.line.client.get().connection_pool
    assert len(pool._connections) == 1


def test_a_frozen_server_costs_one_timeout_not_one_per_request(
    store: RedisStore, lock_server: EmbeddedRedis, told: list[tuple[str, str, str]]
) -> None:
    store.acquire(Acquire(REF, "a"))
    lock_server.pause()
    try:
        started = time.monotonic()
        assert_unavailable(store.acquire(Acquire(REF, "b")))
        assert 0.9 < time.monotonic() - started < 1.6, "one second, and no second try"
        started = time.monotonic()
        for _ in range(100):
            assert_unavailable(store.acquire(Acquire(REF, "b")))
        assert time.monotonic() - started < 0.15
    finally:
        lock_server.resume()
    assert [(alias, verb) for alias, verb, _ in told] == [("default", "acquire")]
    assert told[0][2].startswith("TimeoutError")
    time.sleep(0.25)
    assert store.acquire(Acquire(REF, "b")).id == "a"


def test_the_alias_may_be_more_patient_or_less(lock_server: EmbeddedRedis, settings: Any) -> None:
    settings.CACHES = {**settings.CACHES, "quick": cache(lock_server.url, SOCKET_TIMEOUT=0.2)}
    store = RedisStore("default", "quick")
    store.acquire(Acquire(REF, "a"))
    lock_server.pause()
    try:
        started = time.monotonic()
        assert_unavailable(store.acquire(Acquire(REF, "b")))
        assert time.monotonic() - started < 0.6
    finally:
        lock_server.resume()
    store.close()


def test_a_read_only_server_is_unavailable(store: RedisStore, lock_server: EmbeddedRedis) -> None:
    """As a demoted master after a failover is; the next question opens a new connection."""
    before = store.line.client.ask("CLIENT", "ID")
    with Redis.from_url(lock_server.url) as client:
        client.replicaof("127.0.0.1", 1)
    answer = store.acquire(Acquire(REF, "a"))
    assert_unavailable(answer)
    assert "read only" in answer.error
    assert store.line.client.ask("CLIENT", "ID") != before


def test_a_full_server_is_unavailable(store: RedisStore, lock_server: EmbeddedRedis) -> None:
    with Redis.from_url(lock_server.url) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1")
    answer = store.acquire(Acquire(REF, "a"))
    assert_unavailable(answer)
    assert "OOM" in answer.error or "OutOfMemory" in answer.error


def test_one_part_of_many_may_fail(store: RedisStore, lock_server: EmbeddedRedis) -> None:
    with Redis.from_url(lock_server.url) as client:
        client.set(f"{store.keys.shards[3].lock}{FAR.fingerprint}", "no record", ex=60)
    first, second = store.acquire_many([Acquire(REF, "a"), Acquire(FAR, "b")])
    assert isinstance(first, Acquired)
    assert_unavailable(second)


@pytest.mark.parametrize(
    "reply",
    [b"-LOADING Redis is loading the dataset in memory\r\n", b"-MASTERDOWN Link is down\r\n", b"?\r\n"],
)
def test_a_server_that_answers_nonsense_is_unavailable(settings: Any, reply: bytes) -> None:
    with answering(reply) as port:
        settings.CACHES = {**settings.CACHES, "odd": cache(f"redis://127.0.0.1:{port}/0")}
        store = RedisStore("default", "odd")
        assert_unavailable(store.acquire(Acquire(REF, "a")))
        store.close()


# --- lost replies ---------------------------------------------------------------------------------


@pytest.fixture
def proxy(lock_server: EmbeddedRedis, settings: Any) -> Iterator[Proxy]:
    """A wire to that Redis that loses replies."""
    proxy = Proxy(lock_server.port)
    settings.CACHES = {
        **settings.CACHES,
        "wire": cache(f"redis://127.0.0.1:{proxy.port}/0", SOCKET_TIMEOUT=10),
    }
    yield proxy
    proxy.close()


def test_a_lost_reply_is_asked_for_once_more(proxy: Proxy) -> None:
    store = RedisStore("default", "wire")
    store.acquire(Acquire(OTHER, "x"))
    proxy.lose, proxy.commands = 1, 0
    assert isinstance(store.acquire(Acquire(REF, "a")), Acquired), "not refused by itself"
    assert proxy.commands == 2
    store.acquire_many([Acquire(Ref(1, "b" * 64), "x"), Acquire(FAR, "y")])
    proxy.lose, proxy.commands = 1, 0
    answers = store.acquire_many([Acquire(OTHER, "x"), Acquire(FAR, "y")])
    assert [type(answer) for answer in answers] == [Acquired, Acquired]
    store.close()


def test_two_lost_replies_are_unavailable(proxy: Proxy) -> None:
    store = RedisStore("default", "wire")
    store.acquire(Acquire(OTHER, "x"))
    proxy.lose, proxy.commands = 2, 0
    assert_unavailable(store.acquire(Acquire(REF, "a")))
    assert proxy.commands == 2
    store.close()


# --- connections ----------------------------------------------------------------------------------


def test_a_plain_pool_is_replaced_by_one_that_waits(locks: None) -> None:
    pool = connect(ALIAS).connection_pool
    assert type(pool) is BlockingConnectionPool
    assert (pool.timeout, pool.max_connections) == (1.0, 50)
    kwargs = pool.connection_kwargs
    assert (kwargs["socket_timeout"], kwargs["socket_connect_timeout"]) == (1.0, 1.0)
    assert kwargs["retry"].get_retries() == 1


def test_what_an_alias_says_of_its_pool_is_kept(settings: Any, server: EmbeddedRedis) -> None:
    pool_options = {"max_connections": 7, "timeout": 3, "retry_on_timeout": True, "decode_responses": True}
    settings.CACHES = {
        **settings.CACHES,
        "own": cache(
            server.url.replace("/0", "/5"),  # django-redis shares one pool among aliases with one URL
            SOCKET_TIMEOUT=0.5,
            CONNECTION_POOL_CLASS="redis.BlockingConnectionPool",
            CONNECTION_POOL_KWARGS=pool_options,
        ),
        "unasked": cache(
            server.url.replace("/0", "/6"), CONNECTION_POOL_CLASS="redis.BlockingConnectionPool"
        ),
    }
    pool = connect("own").connection_pool
    assert (pool.timeout, pool.max_connections, pool.connection_kwargs["socket_timeout"]) == (3, 7, 0.5)
    assert pool.connection_kwargs["decode_responses"] is False
    assert connect("unasked").connection_pool.timeout == 1.0, "20 seconds are redis-py's, not the project's"


class OwnPool(BlockingConnectionPool):
    """A pool of the project's own, as Sentinel's is."""


def test_a_pool_of_another_kind_is_used_as_it_is(settings: Any, server: EmbeddedRedis, client: Redis) -> None:
    options = {
        "CONNECTION_POOL_CLASS": f"{__name__}.OwnPool",
        "CONNECTION_POOL_KWARGS": {"decode_responses": True},
    }
    settings.CACHES = {
        **settings.CACHES,
        "own": cache(server.url.replace("127.0.0.1", "localhost"), **options),
    }
    store = RedisStore("default", "own")
    assert type(store.line.client.get().connection_pool) is OwnPool
    assert isinstance(store.acquire(Acquire(REF, "a", args=b"\xff\xfe")), Acquired)
    answer = store.claim(Claim(REF, "a", 0, "one"))
    assert isinstance(answer, Claimed)
    assert answer.args == b"\xff\xfe", "replies come as bytes whatever the pool decodes"
    assert len(store.acquire_many([Acquire(REF, "b"), Acquire(FAR, "c")])) == 2
    pool = store.line.client.get().connection_pool
    store.close()
    assert pool.pool.qsize() == pool.max_connections
    pool.disconnect()


def test_threads_wait_for_a_free_connection(settings: Any, server: EmbeddedRedis, client: Redis) -> None:
    settings.CACHES = {
        **settings.CACHES,
        "narrow": cache(server.url + "?max_connections=2", CONNECTION_POOL_KWARGS={"max_connections": 2}),
    }
    store = RedisStore("default", "narrow")
    answers: list[Any] = []

    def work(number: int) -> None:
        for step in range(20):
            answers.append(store.acquire(Acquire(Ref(7, f"{number:032}{step:032}"), "a")))

    run_threads(16, work)
    assert [type(answer) for answer in answers] == [Acquired] * 320
    store.close()


def run_threads(number: int, work: Callable[[int], None]) -> None:
    """Run threads to their end."""
    threads = [threading.Thread(target=work, args=(one,)) for one in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_who_finds_no_free_connection_in_time_is_told(settings: Any, lock_server: EmbeddedRedis) -> None:
    settings.CACHES = {
        **settings.CACHES,
        "one": cache(
            lock_server.url,
            SOCKET_TIMEOUT=1.5,
            CONNECTION_POOL_CLASS="redis.BlockingConnectionPool",
            CONNECTION_POOL_KWARGS={"max_connections": 1, "timeout": 0.2},
        ),
    }
    store = RedisStore("default", "one")
    store.acquire(Acquire(REF, "a"))
    lock_server.pause()
    try:
        slow = threading.Thread(target=store.acquire, args=(Acquire(REF, "b"),))
        slow.start()
        time.sleep(0.1)
        answer = store.acquire(Acquire(REF, "c"))
        assert_unavailable(answer)
        assert "No connection available" in answer.error
    finally:
        lock_server.resume()
    slow.join()
    store.close()


def test_a_time_limit_between_question_and_reply_does_not_mix_replies_up(store: RedisStore) -> None:
    """As Celery's soft time limit does, an exception strikes in the main thread while it waits."""
    import signal

    class Limit(Exception):  # noqa: N818
        pass

    def strike(*_: Any) -> None:
        raise Limit

    store.acquire(Acquire(REF, "a"))
    with Redis.from_url(
        f"redis://127.0.0.1:{store.line.client.get().connection_pool.connection_kwargs['port']}"
    ) as c:
        c.execute_command("CLIENT", "PAUSE", "300", "ALL")
    previous = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(Limit):
        store.acquire(Acquire(REF, "b"))
    signal.signal(signal.SIGALRM, previous)
    time.sleep(0.3)
    assert isinstance(store.claim(Claim(REF, "a", 0, "one")), Claimed)
    assert store.acquire(Acquire(OTHER, "c")).at > 0


# --- fork -----------------------------------------------------------------------------------------


def in_a_child(work: Callable[[], None]) -> None:
    """Fork, work, and leave at once; fails if the work fails."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_has_connections_of_its_own(store: RedisStore) -> None:
    store.acquire(Acquire(REF, "a"))
    mine = store.line.client.ask("CLIENT", "ID")

    def work() -> None:
        assert store.line.client.ask("CLIENT", "ID") != mine
        for _ in range(50):
            assert store.acquire(Acquire(REF, "b")).id == "a"
        assert store.finish(Finish(Token(OTHER, "x", "x"), 0)) != Released()

    in_a_child(work)
    assert store.line.client.ask("CLIENT", "ID") == mine
    assert isinstance(store.claim(Claim(REF, "a", 0, "one")), Claimed)


def test_a_forked_child_starts_with_a_shut_breaker(store: RedisStore) -> None:
    """Even when another thread held its lock at the moment of the fork."""
    store.line.breaker.failed("dead")
    with store.line.breaker._lock:
        in_a_child(lambda: assert_acquired(store))
    assert store.line.breaker.refuses()


def assert_acquired(store: RedisStore) -> None:
    assert isinstance(store.acquire(Acquire(REF, "a")), Acquired)


def test_a_closed_store_opens_again(store: RedisStore) -> None:
    Client("never used").close()
    first = store.line.client.ask("CLIENT", "ID")
    store.close()
    assert store.line.client.ask("CLIENT", "ID") != first


def test_a_complaint_of_a_script_is_no_reason_to_leave_the_server_alone(store: RedisStore) -> None:
    """One call answers Unavailable; the next one is asked all the same."""
    store.line.scripts.text["claim"] = "return redis.error_reply('ERR compare nil with number')"
    store.line.scripts.sha["claim"] = "0" * 40
    assert isinstance(store.claim(Claim(REF, "a", 0, "x")), Unavailable)
    assert isinstance(store.acquire(Acquire(REF, "a")), Acquired)
