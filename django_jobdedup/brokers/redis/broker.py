"""Messages in Redis, as kombu's transport keeps them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

from kombu.transport.redis import Channel, SentinelChannel
from redis.exceptions import RedisError

from django_jobdedup.brokers.base import Broker
from django_jobdedup.brokers.connection import connected
from django_jobdedup.brokers.content import accepted_types
from django_jobdedup.brokers.found import Count, Found
from django_jobdedup.brokers.message import Message
from django_jobdedup.brokers.redis.closing import Closing, held
from django_jobdedup.brokers.redis.envelope import read_entry
from django_jobdedup.brokers.redis.layout import Layout, List
from django_jobdedup.brokers.redis.listing import FIRST, Listing, fitting
from django_jobdedup.brokers.redis.search import Search
from django_jobdedup.brokers.unreadable import Unreadable

#: Without these kombu waits for a dead server for ever; seconds.
TIMEOUTS: Final[Mapping[str, float]] = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}


class RedisBroker(Broker):
    """The Redis broker of a Celery app: lists by priority, and one ``unacked`` hash for all queues."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._accept = accepted_types(app)

    def queues(self) -> tuple[str, ...]:
        """Return the app's queues and those in kombu's binding tables: SCAN over the broker's database."""
        mailbox = self._app.control.mailbox
        events = self._app.conf.event_exchange
        hidden = frozenset({mailbox.exchange.name, mailbox.reply_exchange.name, events})
        with self._layout() as layout:
            return tuple(sorted({*self._app.amqp.queues, *layout.bound_queues(hidden)}))

    def count(self, queue: str) -> Count:
        """Count what waits; Redis has one ``unacked`` for all queues, so its share is None."""
        with self._layout() as layout:
            pipeline = layout.client.pipeline(transaction=True)
            for list in layout.lists([queue]):
                pipeline.llen(list.key)
            return Count(sum(pipeline.execute()))

    def messages(self, queue: str) -> Iterator[Message]:
        """Go over the lists of a queue, its highest priority first."""
        with self._layout() as layout:
            for list in layout.lists([queue]):
                for raw in chain.from_iterable(Listing(layout.client, list.key).windows()):
                    yield read_entry(raw, list.queue, list.place, self._accept)

    def unacked(self) -> Iterator[Message]:
        """Go over ``unacked``; an entry that is there the whole time is met, perhaps twice."""
        with self._layout() as layout:
            for _, message in self._held(layout):
                yield message

    def find(
        self, task_ids: Iterable[str], queues: Iterable[str] | None = None, *, patience: float = 0.0
    ) -> Found:
        """Read every list once, then ``unacked``, then look once more at one instant: see ``closing``."""
        search = Search(task_ids)
        if not search.missing:
            return search.found()
        names = self.queues() if queues is None else tuple(queues)
        with self._layout() as layout:
            lists = layout.lists(names)
            closing = self._read(layout, lists, search)
            if search.missing and patience:
                time.sleep(patience)
                try:
                    closing.look()
                except Unreadable:  # so much came meanwhile that reading anew is less
                    self._read(layout, lists, search)
        return search.found()

    def _read(self, layout: Layout, lists: Sequence[List], search: Search) -> Closing:
        """Read everything and look at one instant; raises Unreadable if an id is then missing and unsure."""
        listings = [(list, Listing(layout.client, list.key)) for list in lists]
        for list, listing in listings:
            for raw in chain.from_iterable(listing.windows()):
                if not search.skip(raw):
                    search.count(read_entry(raw, list.queue, list.place, self._accept), list.step)
        tags: set[bytes] = set()
        for tag, message in self._held(layout):
            tags.add(tag)
            search.count(message)
        closing = Closing(layout, self._accept, search, listings, tags)
        if search.missing:
            self._assure(layout)
            closing.look()
        return closing

    def _assure(self, layout: Layout) -> None:
        """Raise Unreadable where this server does not know of every message."""
        if not layout.notes_unacked:
            raise Unreadable(
                "broker_transport_options has ack_emulation=False: workers do not note in Redis what they "
                "hold, so no message is surely gone. Remove that option."
            )
        if layout.others:
            raise Unreadable(
                "broker_url names several Redis servers, and a message may lie in any of them. Name one, or "
                "let Sentinel find it (sentinel://)."
            )

    def _held(self, layout: Layout) -> Iterator[tuple[bytes, Message]]:
        cursor: Any = 0
        size = FIRST
        while True:
            cursor, entries = layout.client.hscan(layout.unacked, cursor, count=size)
            for tag, raw in entries.items():
                yield tag, held(layout, raw, self._accept)
            if not cursor:
                return
            if entries:
                size = fitting(sum(map(len, entries.values())) // len(entries))

    @contextmanager
    def _layout(self) -> Iterator[Layout]:
        with connected(self._app, RedisError, TIMEOUTS) as connection:
            channel = connection.channel()
            if not isinstance(channel, Channel):
                raise Unreadable(f"{type(channel).__name__} is not a channel of kombu's Redis transport.")
            several = len(set(connection.alt)) > 1 and not isinstance(channel, SentinelChannel)
            yield Layout(channel, others=several)
