"""Where the message of a job is: in a queue, delivered but not acked, or nowhere; and its way to a worker."""

from __future__ import annotations

import threading
from typing import Literal

import redis

Place = Literal["queued", "unacked"]
PACE = 0.05
"""Seconds between two rounds of the switch."""


class Broker:
    """Reads kombu's keys of one namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True, client_name="crash")
        self._prefix = f"{namespace}:"

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def places(self, id: str, *queues: str) -> frozenset[Place]:
        """Say where messages of *id* are; none: there is no message any more."""
        # Unacked first: a message that moves back to its queue meanwhile is seen at least once.
        unacked = any(id in message for message in self._client.hvals(f"{self._prefix}unacked"))
        queued = any(id in message for queue in queues for message in self._queued(queue))
        found: list[tuple[Place, bool]] = [("queued", queued), ("unacked", unacked)]
        return frozenset(place for place, there in found if there)

    def move(self, queues: dict[str, str]) -> None:
        """Move the messages of queues into others, oldest first."""
        with self._client.pipeline(transaction=False) as pipeline:
            for queue, other in queues.items():
                pipeline.lmove(f"{self._prefix}{queue}", f"{self._prefix}{other}", "RIGHT", "LEFT")
            pipeline.execute()

    def _queued(self, queue: str) -> list[str]:
        found: list[str] = self._client.lrange(f"{self._prefix}{queue}", 0, -1)
        return found


class Switch:
    """Passes messages of many queues on to the few that workers consume.

    A worker could be told to consume each; that are a thousand broadcasts to a dozen workers. Redelivered or
    put off, a message comes back to the queue to which it was sent.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._guard = threading.Lock()
        self._ways: dict[str, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def lead(self, other: str, *queues: str) -> None:
        """Pass messages of queues on to *other* from now on."""
        with self._guard:
            self._ways |= dict.fromkeys(queues, other)

    def leave(self, *queues: str) -> None:
        """Pass no more messages on."""
        with self._guard:
            for queue in queues:
                self._ways.pop(queue, None)

    def close(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(PACE):
            with self._guard:
                ways = dict(self._ways)
            if ways:
                self._broker.move(ways)
