"""What one reading is after, and what it has seen so far."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from django_jobdedup.brokers.found import Found, Sighting
from django_jobdedup.brokers.message import Message

#: An id that JSON spells in one way only; Celery's own are UUIDs.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:@+-]+")
_NAMES: Final = re.compile(rb'id"\s*:\s*"([^"]*)"').findall


class Search:
    """The ids of one reading, with the places where they were seen."""

    def __init__(self, task_ids: Iterable[str]) -> None:
        self._seen: dict[str, list[Sighting]] = {}
        self.missing = set(task_ids)
        self._read = 0
        self._foreign = 0
        plain = all(map(_PLAIN.fullmatch, self.missing))
        self._names = frozenset(id.encode() for id in self.missing) if plain else None

    def skip(self, raw: bytes) -> bool:
        """Count an entry that names some job, but surely none of those, and return True; five times as fast.

        Every value of a key that ends in "id" counts as a name. False for all that has to be parsed.
        """
        if self._names is None:
            return False
        names = _NAMES(raw)
        if not names or not self._names.isdisjoint(names):
            return False
        self._read += 1
        return True

    def count(self, message: Message, priority: int = 0) -> None:
        """Look at a message and count it."""
        self._read += 1
        self._foreign += not message.id
        self.look(message, priority)

    def look(self, message: Message, priority: int = 0) -> None:
        """Note a message that is one of those."""
        sighting = Sighting(message.place, message.queue, priority)
        if message.id:
            self._note(message.id, sighting)
            return
        # No worker could run it, but who is named in it is not surely gone.
        for id in [id for id in (*self.missing, *self._seen) if id.encode() in message.raw]:
            self._note(id, sighting)

    def found(self) -> Found:
        """Return the outcome."""
        seen = {id: tuple(places) for id, places in self._seen.items()}
        return Found(seen, frozenset(self.missing), self._read, self._foreign)

    def _note(self, id: str, sighting: Sighting) -> None:
        if id in self.missing:
            self.missing.discard(id)
            self._seen[id] = []
        places = self._seen.get(id)
        if places is not None and sighting not in places:
            places.append(sighting)
