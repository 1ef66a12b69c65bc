"""One atomic step over one shard, in Python: what ``lua/_prelude.lua`` is in Redis."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from django_jobdedup.stores.inprocess.seat import Entry, Mark, Seat, Sleeper
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.results import Event, Lapsed

MINUTE: Final = 60_000
MONTH: Final = 30 * 86_400_000
LAPSES: Final[dict[str, Lapsed]] = {"P": "abandoned", "W": "lapsed", "K": "lapsed", "R": "lost"}


@dataclass(slots=True)
class Shelf:
    """Everything of one shard."""

    entries: dict[str, Entry] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    #: Who sleeps, by fingerprint and id.
    lines: dict[str, dict[str, Sleeper]] = field(default_factory=dict)
    counters: Counter[tuple[str, str]] = field(default_factory=Counter)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=10_000))
    fence: int = 0
    written: int = 0
    crowded: int = 1000

    def forget(self, now: int) -> None:
        """Drop what has expired, when there is much: twice what was left the last time."""
        if self._size() < self.crowded:
            return
        self.entries = {fp: entry for fp, entry in self.entries.items() if entry.expires > now}
        self.marks = {id: mark for id, mark in self.marks.items() if mark.deadline > now}
        for fingerprint, line in list(self.lines.items()):
            if all(sleeper.until <= now for sleeper in line.values()):
                del self.lines[fingerprint]
        self.crowded = 2 * self._size() + 1000

    def _size(self) -> int:
        return len(self.entries) + len(self.marks) + len(self.lines)


@dataclass(slots=True)
class Step:
    """A shelf at one moment; ``now`` and ``grace`` in milliseconds, ``micros`` for the fence.

    ``keeps``: the shelf is that of a durable store, which keeps calls.
    """

    shelf: Shelf
    micros: int
    grace: int
    now: int = 0
    keeps: bool = False

    def __post_init__(self) -> None:
        self.now = self.micros // 1000

    def copy(self) -> Step:
        """Return a step that can be given up: what it changes is not changed here."""
        entries = {
            fingerprint: replace(entry, seats=[replace(seat) for seat in entry.seats])
            for fingerprint, entry in self.shelf.entries.items()
        }
        shelf = replace(
            self.shelf,
            entries=entries,
            marks=dict(self.shelf.marks),
            lines={fingerprint: dict(line) for fingerprint, line in self.shelf.lines.items()},
            counters=self.shelf.counters.copy(),
            events=self.shelf.events.copy(),
        )
        return replace(self, shelf=shelf)

    def entry(self, ref: Ref) -> Entry:
        """Return the record, an empty one if there is none; ``save`` keeps it."""
        return self.shelf.entries.get(ref.fingerprint) or Entry(ref)

    def save(self, entry: Entry) -> None:
        """Keep a record that has holders, remove one that has none."""
        if not entry.seats:
            self.shelf.entries.pop(entry.ref.fingerprint, None)
            return
        entry.attention = min(seat.attention(self.now) for seat in entry.seats)
        entry.expires = self.grace + max(
            seat.deadline if not seat.intent else max(seat.until, self.now) + MONTH for seat in entry.seats
        )
        self.shelf.entries[entry.ref.fingerprint] = entry

    def sweep(self, entry: Entry, own: str = "") -> list[Seat]:
        """Remove the dead, except the caller's own id; return what was removed."""
        swept = [seat for seat in entry.seats if seat.id != own and seat.dead(self.now)]
        entry.seats = [seat for seat in entry.seats if seat not in swept] if swept else entry.seats
        for seat in swept:
            self.event(LAPSES[seat.state], entry, seat, self._ended_before(seat))
            self.count(entry.name, LAPSES[seat.state])
        return swept

    def _ended_before(self, seat: Seat) -> str:
        """Return the last attempt of a lost run's id that had ended before; see ``lua/_prelude.lua``."""
        last = self.ended(seat.id) if seat.state == "R" else -1
        return str(last) if last >= 0 else ""

    def mark(self, id: str) -> Mark | None:
        """Return the marker of an id if its time has not passed."""
        mark = self.shelf.marks.get(id)
        return mark if mark is not None and mark.deadline > self.now else None

    def ended(self, id: str) -> int:
        """Return the highest attempt of an id that has ended, -1 if none has."""
        mark = self.mark(id)
        return mark.n if mark is not None else -1

    def supersede(self, entry: Entry, seat: Seat) -> None:
        """End the waiting seats that this one comes over: their messages, when they come, follow it."""
        for older in [entry.seat(id) for id in seat.over]:
            if older is not None and older.waits:
                entry.seats.remove(older)
                deadline = max(older.due + older.ttl, self.now + MINUTE)
                self.shelf.marks[older.id] = Mark(deadline, by=seat.id)
                self.event("superseded", entry, older, seat.id)
        seat.over = ()

    def to_waiting(self, entry: Entry, seat: Seat) -> None:
        """Take note that the message of a seat exists."""
        self.supersede(entry, seat)
        if seat.state == "P":
            seat.state, seat.until = "W", seat.due + seat.ttl

    def count(self, name: str, what: str) -> None:
        """Count an answer."""
        self.shelf.counters[name, what] += 1

    def event(self, what: str, entry: Entry, seat: Seat, other: str = "") -> None:
        """Write down something abnormal."""
        self.shelf.written += 1
        key = f"{self.now}-{self.shelf.written}"
        self.shelf.events.append(
            Event(key, what, self.now / 1000, entry.ref, seat.id, entry.name, seat.by, other)
        )

    def next_fence(self) -> int:
        """Return a number above every one before it, also over a restart."""
        self.shelf.fence = max(self.shelf.fence + 1, self.micros)
        return self.shelf.fence


def waiting(seats: Iterable[Seat]) -> list[Seat]:
    """Return those whose message exists or is about to."""
    return [seat for seat in seats if seat.waits]
