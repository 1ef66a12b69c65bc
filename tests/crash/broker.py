"""Where the message of a job is: in a queue, delivered but not acked, or nowhere."""

from __future__ import annotations

from typing import Literal

import redis

Place = Literal["queued", "unacked"]


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

    def _queued(self, queue: str) -> list[str]:
        found: list[str] = self._client.lrange(f"{self._prefix}{queue}", 0, -1)
        return found
