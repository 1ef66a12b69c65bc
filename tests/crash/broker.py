"""Where the message of a job is: in a queue, delivered but not acked, or nowhere."""

from __future__ import annotations

from typing import Literal

import redis

Place = Literal["queued", "unacked", ""]


class Broker:
    """Reads kombu's keys of one namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True, client_name="crash")
        self._prefix = f"{namespace}:"

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def place(self, id: str, *queues: str) -> Place:
        """Say where a message of *id* is; a queue comes first."""
        # Unacked first: a message that moves back to its queue meanwhile is seen at least once.
        unacked = any(id in message for message in self._client.hvals(f"{self._prefix}unacked"))
        if any(id in message for queue in queues for message in self._queued(queue)):
            return "queued"
        return "unacked" if unacked else ""

    def _queued(self, queue: str) -> list[str]:
        found: list[str] = self._client.lrange(f"{self._prefix}{queue}", 0, -1)
        return found
