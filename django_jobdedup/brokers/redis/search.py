"""What one reading is after, and what it has seen so far."""

from __future__ import annotations

from collections.abc import Iterable

from django_jobdedup.brokers.found import Found, Sighting
from django_jobdedup.brokers.message import Message


class Search:
    """The ids of one reading, with the places where they were seen."""

    def __init__(self, task_ids: Iterable[str]) -> None:
        self._seen: dict[str, list[Sighting]] = {}
        self.missing = set(task_ids)
        self._read = 0
        self._foreign = 0

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
