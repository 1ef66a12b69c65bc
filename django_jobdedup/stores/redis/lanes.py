"""Lanes: connections of a waiting pool, kept ready, for one command at a time.

A refused dispatch is one round trip and little else. The pool's own way costs a third of that round
trip again, in checks that a repeatable verb does not need: a connection that the server has closed
meanwhile is opened again and the command sent once more. Packing a command here takes less than half
the time of redis-py's own packer, and as long as that of hiredis.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from redis import BlockingConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError, ReadOnlyError, ResponseError

from django_jobdedup.stores.redis.spin import Spin


class Lanes:
    """At most as many connections as the pool allows; who finds none waits as long as the pool would."""

    def __init__(self, pool: BlockingConnectionPool) -> None:
        self._pool = pool
        self._free: SimpleQueue[Any] = SimpleQueue()
        self._unmade = threading.Semaphore(pool.max_connections)
        self._patience: float | None = pool.timeout
        self._made = 0
        self._spin = Spin()

    def ask(self, *command: Any) -> Any:
        """Send a command and return its reply in bytes. Raises redis.RedisError."""
        packed = pack(command)
        connection = self._take()
        try:
            reply = self._exchange(connection, packed)
        except ResponseError as error:
            if isinstance(error, ReadOnlyError) or "READONLY" in str(error):
                # A demoted master: its name may lead to the new one by now. Redis 6 says it in words only.
                connection.disconnect()
            self._free.put(connection)
            raise
        except BaseException:
            # Also a time limit that strikes between question and reply: the reply would be the next one's.
            # The lane stays, closed: the pool remembers every connection that it ever made.
            connection.disconnect()
            self._free.put(connection)
            raise
        self._free.put(connection)
        return reply

    def _take(self) -> Any:
        try:
            return self._free.get_nowait()
        except Empty:
            pass
        if self._unmade.acquire(blocking=False):
            return self._make()
        try:
            return self._free.get(timeout=self._patience)
        except Empty:
            raise RedisConnectionError("No connection available.") from None

    def _make(self) -> Any:
        try:
            made = self._pool.make_connection()
        except BaseException:
            self._unmade.release()
            raise
        self._made += 1
        return made

    def _exchange(self, connection: Any, packed: Sequence[bytes]) -> Any:
        try:
            connection.send_packed_command(packed)
            if self._free.qsize() >= self._made - 1:  # no other thread is at it: looking is in nobody's way
                self._spin.look(connection._sock)
            return connection.read_response(disable_decoding=True)
        except RedisConnectionError:
            connection.disconnect()
            connection.send_packed_command(packed)
            return connection.read_response(disable_decoding=True)


def pack(command: Sequence[Any]) -> Sequence[bytes]:
    """Return a command as Redis reads it: the number of words, then each with its length.

    Raises redis.DataError for what is neither text, bytes nor a whole number.
    """
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        if isinstance(word, str):
            data = word.encode()
        elif isinstance(word, int):
            data = b"%d" % word
        elif isinstance(word, bytes):
            data = word
        else:
            raise DataError(f"Redis takes text, bytes and whole numbers, not {word!r}.")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return (b"".join(parts),)
