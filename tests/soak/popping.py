"""Workers that lose no message between two commands of their own.

kombu pops a message, then notes it as unacked: a worker that is killed between the two has lost it, whatever
the ack (the reaper finds that out and tells it, see ``tests/recovery/test_freeing.py``). Here it moves the
message into a list of its own instead, until it has noted it, and what a dead worker has left there goes
back to the queue. So whatever is lost in a soak was lost by us.
"""

from __future__ import annotations

import os
import time
from queue import Empty
from typing import Any, Final

import redis
from django.conf import settings
from kombu.transport.redis import Channel
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

QUEUE: Final = "celery"
BLOCKS: Final = 1
"""Seconds that a pop waits for a message, as in kombu."""


def popped_by(pid: int, namespace: str) -> str:
    """Give the name of the list of a worker."""
    return f"{namespace}:popped:{pid}"


def rescue(client: redis.Redis, pid: int, namespace: str) -> None:
    """Put back what a dead worker has left."""
    while client.lmove(popped_by(pid, namespace), f"{namespace}:{QUEUE}", "LEFT", "RIGHT"):
        pass


def install() -> None:
    """Have this process pop so, if it is a worker: from one queue without priorities."""
    Channel._brpop_start, Channel._brpop_read = _start, _read


def _start(self: Any, timeout: float | None = None) -> None:
    queues = self._queue_cycle.consume(len(self.active_queues))
    if not queues:
        return
    assert queues == [QUEUE], queues
    self._in_poll = self.client.connection
    self._brpop_sent_at = time.monotonic()
    names = f"{settings.TEST_NAMESPACE}:{QUEUE}", popped_by(os.getpid(), settings.TEST_NAMESPACE)
    self.client.connection.send_command("BLMOVE", *names, "RIGHT", "LEFT", timeout or BLOCKS)


def _read(self: Any, **options: Any) -> bool:
    try:
        try:
            item = self.client.parse_response(self.client.connection, "BLMOVE", **options)
        except self.connection_errors:
            self.client.connection.disconnect()
            raise
        if not item:
            raise Empty
        self.connection._deliver(loads(bytes_to_str(item)), QUEUE)
        with self.conn_or_acquire() as client:
            client.lrem(popped_by(os.getpid(), settings.TEST_NAMESPACE), 1, item)
        return True
    finally:
        self._in_poll = None
