"""The closing look: one instant that ends a reading of Redis, so that nothing slips past by moving.

Lists and ``unacked`` are read one after the other, while workers take messages from the first to the second
and put them back. The look is one MULTI over the ends of every list and the names in ``unacked``. Whatever
lies in the broker at that instant was met:

- in ``unacked`` under a tag that the reading met, or under a new one, which is read now;
- in a list since before the reading of that list began: the reading met it (see ``Listing``);
- pushed at the head since then: it lies before the entries of the first window that were never taken out,
  and the look shows those;
- put back at the tail since then, by kombu's restore, which marks it as redelivered: such entries lie
  behind every other one, and the look shows an entry without the mark.

Where it does not show that much it is taken again, wider. What it cannot see is a message between a
worker's BRPOP and its HSET of ``unacked``: that one lies in no key of Redis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django_jobdedup.brokers.message import Message
from django_jobdedup.brokers.redis.envelope import read_entry, read_unacked
from django_jobdedup.brokers.redis.layout import Layout, List
from django_jobdedup.brokers.redis.listing import Listing
from django_jobdedup.brokers.redis.search import Search
from django_jobdedup.brokers.unreadable import Unreadable

#: Entries of each end in the first look, and bytes of an end at most.
WIDTH: Final = 100
WIDEST: Final = 64 * 2**20
#: Looks at which something in ``unacked`` may vanish before it is read.
LOOKS: Final = 20


@dataclass(slots=True)
class _End:
    """A list with its reading, and how many entries of each end a look takes."""

    list: List
    listing: Listing
    width: int


class Closing:
    """The closing look of one reading; may be taken again."""

    def __init__(
        self,
        layout: Layout,
        accept: frozenset[str],
        search: Search,
        listings: Iterable[tuple[List, Listing]],
        tags: set[bytes],
    ) -> None:
        self._layout = layout
        self._accept = accept
        self._search = search
        self._ends = [_End(list, listing, WIDTH) for list, listing in listings]
        self._tags = tags

    def look(self) -> None:
        """Look until one instant was seen in full; raises Unreadable if that cannot be had."""
        for _ in range(LOOKS):
            if self._look():
                return
        raise Unreadable(f"What workers hold changes faster than it can be read, in {LOOKS} looks.")

    def _look(self) -> bool:
        answers = iter(self._instant())
        complete = True
        for end in self._ends:
            complete &= self._shown(end, next(answers), next(answers))
        return self._read_tags(next(answers)) and complete

    def _instant(self) -> Sequence[Any]:
        pipeline = self._layout.client.pipeline(transaction=True)
        for end in self._ends:
            pipeline.lrange(end.list.key, 0, end.width - 1)
            pipeline.lrange(end.list.key, -end.width, -1)
        pipeline.hkeys(self._layout.unacked)
        answers: list[Any] = pipeline.execute()
        return answers

    def _shown(self, end: _End, head: list[bytes], tail: list[bytes]) -> bool:
        """Look at both ends of a list; say whether nothing new can lie between them."""
        newest = [self._entry(end.list, raw) for raw in head]
        if len(head) < end.width:
            return True
        oldest = [self._entry(end.list, raw) for raw in tail]
        before = {raw for raw in end.listing.first if _untouched(self._entry(end.list, raw))}
        shown = before.intersection(message.raw for message in newest)
        # Half of them, not one: a push whose reply was lost is repeated, and its copy lies further up.
        if before and len(shown) * 2 >= len(before) and any(map(_untouched, oldest)):
            return True
        end.width *= 4
        if end.width * end.listing.average > WIDEST:
            raise Unreadable(
                f"Too much was pushed or put back on {end.list.key!r} while it was read: more than "
                f"{end.width // 4} messages at one end."
            )
        return False

    def _entry(self, list: List, raw: bytes) -> Message:
        message = read_entry(raw, list.queue, list.place, self._accept)
        self._search.look(message, list.step)
        return message

    def _read_tags(self, tags: Iterable[bytes]) -> bool:
        """Read what is new in ``unacked``; say whether all of it was still there."""
        new = [tag for tag in tags if tag not in self._tags]
        complete = True
        for start in range(0, len(new), WIDTH):
            names = new[start : start + WIDTH]
            entries = self._layout.client.hmget(self._layout.unacked, names)
            for tag, raw in zip(names, entries, strict=True):
                if raw is None:
                    complete = False
                    continue
                self._tags.add(tag)
                self._search.look(held(self._layout, raw, self._accept))
        return complete


def held(layout: Layout, raw: bytes, accept: frozenset[str]) -> Message:
    """Read an entry of ``unacked``, with the queue it would go back to."""
    message, exchange, routing_key = read_unacked(raw, accept)
    return replace(message, queue=layout.queue_of(exchange, routing_key))


def _untouched(message: Message) -> bool:
    """Whether no worker ever had it: it lies where it was pushed."""
    return bool(message.id) and not message.redelivered
