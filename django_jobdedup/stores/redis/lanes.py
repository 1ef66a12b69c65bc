"""Lanes: connections of a waiting pool, kept ready, for one command at a time.

A refused dispatch is one round trip and little else. The pool's own way costs a third of that round
trip again, in checks that a repeatable verb does not need: a connection that the server has closed
meanwhile is opened again and the command sent once more.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from redis import BlockingConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, ResponseError


class Lanes:
    """At most as many connections as the pool allows; who finds none waits as long as the pool would."""

    def __init__(self, pool: BlockingConnectionPool) -> None:
        self._pool = pool
        self._free: deque[Any] = deque()
        self._slots = threading.Semaphore(pool.max_connections)
        self._patience: float | None = pool.timeout

    def ask(self, *command: Any) -> Any:
        """Send a command and return its reply in bytes. Raises redis.RedisError."""
        if not self._slots.acquire(timeout=self._patience):
            raise RedisConnectionError("No connection available.")
        try:
            return self._ask(self._take(), command)
        finally:
            self._slots.release()

    def _take(self) -> Any:
        try:
            return self._free.pop()
        except IndexError:
            return self._pool.make_connection()

    def _ask(self, connection: Any, command: tuple[Any, ...]) -> Any:
        try:
            reply = self._exchange(connection, command)
        except ResponseError as error:
            if isinstance(error, ReadOnlyError) or "READONLY" in str(error):
                # A demoted master: its name may lead to the new one by now. Redis 6 says it in words only.
                connection.disconnect()
            self._free.append(connection)
            raise
        except BaseException:
            # Also a time limit that strikes between question and reply: the reply would be the next one's.
            # The lane stays, closed: the pool remembers every connection that it ever made.
            connection.disconnect()
            self._free.append(connection)
            raise
        self._free.append(connection)
        return reply

    def _exchange(self, connection: Any, command: tuple[Any, ...]) -> Any:
        try:
            connection.send_command(*command)
            return connection.read_response(disable_decoding=True)
        except RedisConnectionError:
            connection.disconnect()
            connection.send_command(*command)
            return connection.read_response(disable_decoding=True)
