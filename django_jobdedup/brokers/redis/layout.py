"""Where kombu's Redis transport keeps things: the names of its keys, taken from kombu's own channel.

URL, database, Sentinel, TLS, separator, priority steps and key prefix are all kombu's business. Its client
prefixes only the commands that kombu itself sends, LRANGE and HSCAN not among them, so the keys are spelled
here in full and sent by a plain client on kombu's pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import redis

from django_jobdedup.brokers.message import Place


@dataclass(frozen=True, slots=True)
class List:
    """One Redis list: the queue it belongs to, its priority step, its full key."""

    queue: str
    step: int
    key: str
    place: Place


class Layout:
    """The keys of one channel's transport, and the client that reads them."""

    def __init__(self, channel: Any, *, others: bool = False) -> None:
        self.client: Any = redis.Redis(connection_pool=channel.pool)
        self._channel = channel
        self._prefix = str(channel.global_keyprefix)
        self.unacked = f"{self._prefix}{channel.unacked_key}"
        #: Whether workers note in Redis what they hold.
        self.notes_unacked = bool(channel.ack_emulation)
        #: Whether the app knows other servers, where messages may lie too.
        self.others = others
        self._routes: dict[tuple[str, str], str] = {}

    def lists(self, queues: Iterable[str]) -> list[List]:
        """Return the lists of queues, one for each priority step."""
        return [self._list(queue, step) for queue in dict.fromkeys(queues) for step in self._steps()]

    def bound_queues(self, hidden: frozenset[str]) -> Iterator[str]:
        """Go over the queues in kombu's binding tables, but for those of *hidden* exchanges.

        SCAN: it blocks nobody, and takes a round trip for each thousand keys of the database.
        """
        tables = f"{self._prefix}{self._channel.keyprefix_queue % ''}"
        for key in self.client.scan_iter(match=f"{_literal(tables)}*", count=1000):
            if _str(key).removeprefix(tables) not in hidden:
                for _, _, queue in self._table(_str(key)):
                    yield queue
        if self._channel.deadletter_queue:
            yield str(self._channel.deadletter_queue)

    def queue_of(self, exchange: str, routing_key: str) -> str:
        """Return the queue to which kombu would put a message back; its routing key if no table says."""
        if not exchange:
            return routing_key
        known = self._routes.get((exchange, routing_key))
        if known is None:
            known = self._routes[exchange, routing_key] = self._bound(exchange, routing_key)
        return known

    def _bound(self, exchange: str, routing_key: str) -> str:
        for key, pattern, queue in self._table(
            f"{self._prefix}{self._channel.keyprefix_queue % (exchange,)}"
        ):
            if key == routing_key or (pattern and _matches(pattern, routing_key)):
                return queue
        return routing_key

    def _table(self, key: str) -> Iterator[tuple[str, str, str]]:
        for member in self.client.smembers(key):
            match _str(member).split(self._channel.sep):
                case [routing_key, pattern, queue] if queue:
                    yield routing_key, pattern, queue

    def _steps(self) -> Iterable[int]:
        return dict.fromkeys(self._channel.priority_steps)

    def _list(self, queue: str, step: int) -> List:
        name = self._channel._q_for_pri(queue, step)
        place = Place.QUEUE if name == queue else Place.PRIORITY_LIST
        return List(queue, step, f"{self._prefix}{name}", place)


def _matches(pattern: str, routing_key: str) -> bool:
    try:
        return re.match(pattern, routing_key) is not None
    except re.error:  # of somebody who writes tables himself: kombu could not route by it either
        return False


def _str(value: Any) -> str:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


def _literal(text: str) -> str:
    """Escape what MATCH takes for a wildcard."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
