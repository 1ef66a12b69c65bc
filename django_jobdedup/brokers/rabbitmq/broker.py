"""Messages in RabbitMQ: counted, never looked at.

AMQP cannot browse. To see a message is to take it and to put it back, which marks it as redelivered, changes
the order, and on a quorum queue adds to the delivery count, after which RabbitMQ 4 drops it; the management
API does the same. So one message is never found here. What can be proved is that there is none at all: no
queue has a message waiting or unacked, the levels of native delayed delivery included.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from amqp.exceptions import AMQPError, NotFound
from kombu.transport.native_delayed_delivery import MAX_LEVEL, level_name

from django_jobdedup.brokers.base import Broker
from django_jobdedup.brokers.connection import connected
from django_jobdedup.brokers.found import Count, Found
from django_jobdedup.brokers.message import Message
from django_jobdedup.brokers.rabbitmq.management import Depth, Management
from django_jobdedup.brokers.unreadable import Unreadable

#: Seconds between two looks that cannot both rest on the same numbers: queues report every 5 s, and were
#: seen to take 10.
STALE: Final = 15.0
#: Without these a server that hangs would hold the caller; seconds.
TIMEOUTS: Final[Mapping[str, float]] = {"read_timeout": 10.0, "write_timeout": 10.0}
NOT_LISTED: Final = (
    "Messages in RabbitMQ cannot be looked at without taking them, which would mark, reorder and on quorum "
    "queues even drop them. Use count(), or find() for the proof that there are none."
)
_DELAYED = re.compile(r"(?:.+_)?celery_delayed_(\d+)")


class RabbitBroker(Broker):
    """The RabbitMQ broker of a Celery app: classic and quorum queues, and native delayed delivery."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def queues(self) -> tuple[str, ...]:
        """Return the app's queues and the delayed levels; with the management API all of the virtual host."""
        with self._connection() as connection:
            try:
                known: Iterable[str] = Management(connection).queues()
            except Unreadable:
                known = _levels(connection)
            return tuple(sorted({*self._app.amqp.queues, *known}))

    def count(self, queue: str) -> Count:
        """Count what waits, at this moment; what is unacked is some seconds old, None without the API."""
        with self._connection() as connection:
            declared = _declared(connection, queue)
            if declared is None:
                return Count(0, 0, 0)
            ready, consumers = declared
            try:
                depth = Management(connection).queues().get(queue)
            except Unreadable:
                depth = None
            return Count(ready, depth.unacked if depth else None, consumers)

    def messages(self, queue: str) -> Iterator[Message]:
        """Raise Unreadable: listing would change what is listed."""
        raise Unreadable(NOT_LISTED)

    def unacked(self) -> Iterator[Message]:
        """Raise Unreadable: RabbitMQ counts what workers hold, and shows none of it."""
        raise Unreadable(NOT_LISTED)

    def find(
        self, task_ids: Iterable[str], queues: Iterable[str] | None = None, *, patience: float = 0.0
    ) -> Found:
        """Return all ids as missing if no queue holds anything, in two looks ``patience`` apart.

        Raises Unreadable in every other case, the common one, and for less than 15 s of patience.
        """
        missing = frozenset(task_ids)
        if not missing:
            return Found({})
        names = self.queues() if queues is None else tuple(queues)
        with self._connection() as connection:
            _assert_empty(connection, names)
            if patience < STALE:
                raise Unreadable(
                    "RabbitMQ shows no message, but its counts of unacked ones may be some seconds old: "
                    f"give patience={STALE:g}, and they are read again after that time."
                )
        # No connection in between: it has no heartbeat.
        time.sleep(patience)
        with self._connection() as connection:
            _assert_empty(connection, names)
        return Found({}, missing)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        with connected(self._app, AMQPError, TIMEOUTS) as connection:
            yield connection


def _assert_empty(connection: Any, names: Iterable[str]) -> None:
    """Raise Unreadable unless no queue of *names* and no delayed level has a message."""
    known = Management(connection).queues()
    # From the longest delay down and the queues last: a message that falls due moves in the same direction.
    levels = sorted(filter(_DELAYED.fullmatch, known), key=_level, reverse=True)
    for name in dict.fromkeys((*levels, *(name for name in names if name not in levels))):
        declared = _declared(connection, name)
        if declared is None:
            continue
        _assert_holds_nothing(name, declared[0], known.get(name))


def _assert_holds_nothing(name: str, ready: int, depth: Depth | None) -> None:
    if depth is None or depth.ready is None or depth.unacked is None:
        raise Unreadable(
            f"The queue {name!r} has not reported yet to the management API what it holds; a new one takes "
            "some seconds."
        )
    if ready or depth.ready or depth.unacked:
        raise Unreadable(
            f"The queue {name!r} holds {max(ready, depth.ready)} waiting and {depth.unacked} unacked "
            "messages, and RabbitMQ does not show which, so no message is surely gone."
        )


def _declared(connection: Any, queue: str) -> tuple[int, int] | None:
    """Return messages ready and consumers by a passive declare; None for a queue that is not there."""
    channel = connection.channel()
    try:
        declared = channel.queue_declare(queue, passive=True)
    except NotFound:  # the server has closed the channel
        return None
    finally:
        channel.close()
    return declared.message_count, declared.consumer_count


def _levels(connection: Any) -> Iterator[str]:
    """Go over the levels of native delayed delivery that exist: all or none, so one is asked for."""
    if _declared(connection, level_name(MAX_LEVEL)) is not None:
        yield from map(level_name, range(MAX_LEVEL + 1))


def _level(name: str) -> int:
    return int(name.rpartition("_")[2])
