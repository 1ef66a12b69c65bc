"""Lanes: what goes over the wire, and how many connections there may be."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from redis import BlockingConnectionPool, Redis
from redis._parsers.encoders import Encoder
from redis.connection import PythonRespSerializer
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError

from django_jobdedup.stores.redis.lanes import Lanes, pack
from django_jobdedup.stores.redis.spin import Spin
from testproject.embedded_redis import EmbeddedRedis


class Word(str):
    """A text that is not exactly a str, such as Django's SafeString."""


@pytest.mark.parametrize(
    "command",
    [
        ("PING",),
        ("EVALSHA", "0" * 40, 2, "k\u00e9y", b"\x00\r\n\xff", "", -7, 10**20),
        (Word("GET"), Word("x")),
    ],
)
def test_a_command_is_packed_as_redis_py_packs_it(command: tuple[Any, ...]) -> None:
    theirs = PythonRespSerializer(6000, Encoder("utf-8", "strict", False).encode).pack(*command)
    assert b"".join(pack(command)) == b"".join(theirs)


@pytest.mark.parametrize("word", [None, 1.5, ["a"]])
def test_a_word_of_another_kind_is_the_callers_mistake(word: object) -> None:
    with pytest.raises(DataError, match="not "):
        pack(("SET", "key", word))


def test_who_finds_no_free_lane_waits_as_long_as_the_pool_would(server: EmbeddedRedis) -> None:
    lanes = Lanes(BlockingConnectionPool.from_url(server.url, max_connections=1, timeout=0.2))
    begun = threading.Event()

    def block() -> None:
        begun.set()
        lanes.ask("BLPOP", "jobdedup:nothing", 1)

    thread = threading.Thread(target=block)
    thread.start()
    begun.wait()
    try:
        with pytest.raises(RedisConnectionError, match="No connection"):
            ask_until_refused(lanes)
    finally:
        thread.join()
    assert lanes.ask("PING") == b"PONG"


def ask_until_refused(lanes: Lanes) -> None:
    """Ask on and on: the other thread may still be on its way to the only lane."""
    while True:
        lanes.ask("PING")


class Looks(Spin):
    """Notes which thread looked."""

    def __init__(self) -> None:
        super().__init__()
        self.by: list[threading.Thread] = []
        self.seen = threading.Event()

    def look(self, sock: Any) -> bool:
        """Note it, and look."""
        self.by.append(threading.current_thread())
        self.seen.set()
        return super().look(sock)


def test_who_asks_beside_another_thread_does_not_look_for_its_reply(
    server: EmbeddedRedis, client: Redis
) -> None:
    lanes = Lanes(BlockingConnectionPool.from_url(server.url))
    lanes._spin = looks = Looks()
    main = threading.current_thread()
    assert lanes.ask("PING") == b"PONG"
    assert looks.by == [main]

    looks.seen.clear()
    other = threading.Thread(target=lanes.ask, args=("BLPOP", "jobdedup:gate", 30))
    other.start()
    looks.seen.wait()
    assert lanes.ask("PING") == b"PONG"
    assert looks.by == [main, other]

    client.rpush("jobdedup:gate", "open")
    other.join()
    assert lanes.ask("PING") == b"PONG"
    assert looks.by == [main, other, main]
