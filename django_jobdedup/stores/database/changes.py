"""What a decision has changed: the columns of each row before and after, and the keys of its seats."""

from __future__ import annotations

from dataclasses import dataclass

from django_jobdedup.stores.database.purpose import Purpose
from django_jobdedup.stores.database.rows import (
    UNSEATED,
    Columns,
    Row,
    asleep_column,
    mark_columns,
    seat_columns,
    seat_key,
    seat_number,
)
from django_jobdedup.stores.database.states import state_of
from django_jobdedup.stores.database.view import View
from django_jobdedup.stores.inprocess.seat import Mark, Seat
from django_jobdedup.stores.inprocess.step import Step


@dataclass(slots=True)
class Change:
    """A row, and the columns that are to be written; none: it is only touched, so that racers notice."""

    row: Row
    columns: Columns

    @property
    def takes(self) -> bool:
        """Say whether it takes the key of a seat; then rows that give one back come first."""
        return any(self.columns.get(name) for name in ("wait_key", "run_key"))

    @property
    def order(self) -> tuple[bool, bool, int]:
        """Return where it comes in a transaction: givers, takers, new rows, each by primary key."""
        return not self.row.id, self.takes, self.row.id


@dataclass(frozen=True, slots=True)
class Changes:
    """The write set of one decision.

    ``rows`` in order of writing, ``refused`` rows that count refusals, ``seen`` what a new waiting seat
    rests on: (id, version) of the rows with a seat as they stand when it is written; None: on nothing.
    """

    rows: tuple[Change, ...]
    refused: tuple[tuple[int, int], ...]
    seen: tuple[tuple[int, int], ...] | None

    @property
    def few(self) -> bool:
        """Say whether one statement writes it all."""
        return len(self.rows) + len(self.refused) <= 1


class Comparison:
    """The rows of a view before a decision, and the seats and markers of its step after it."""

    def __init__(self, view: View, step: Step, purpose: Purpose) -> None:
        self.view, self.step, self.purpose = view, step, purpose
        entry = step.shelf.entries.get(view.ref.fingerprint)
        self.name = entry.name if entry is not None else ""
        self.seats: dict[str, Seat] = {seat.id: seat for seat in entry.seats} if entry is not None else {}
        self.marks: dict[str, Mark] = step.shelf.marks
        self.line = step.shelf.lines.get(view.ref.fingerprint, {})
        self.events = {event.id: event.what for event in step.shelf.events}
        self.after: dict[str, Columns] = {}

    def changes(self) -> Changes:
        """Return the write set."""
        rows = {token: self.view.row(token) for token in {*self.view.rows, *self.seats, *self.marks}}
        for token, row in rows.items():
            self.after[token] = self._columns(row)
        self._give_keys(rows)
        differences = {token: self._difference(row) for token, row in rows.items()}
        refused = tuple(
            (row.id, differences.pop(token)["refused"] - row.was["refused"])
            for token, row in rows.items()
            if row.id and set(differences[token]) == {"refused"}
        )
        touched = self._rests_on(rows)
        changes = [
            Change(rows[token], columns)
            for token, columns in differences.items()
            if columns or token in touched
        ]
        changes.sort(key=lambda change: change.order)
        return Changes(tuple(changes), refused, self._seen(changes) if self._enters(rows) else None)

    # --- columns ---

    def _columns(self, row: Row) -> Columns:
        seat, mark = self.seats.get(row.token), self.marks.get(row.token)
        own = row.token == self.purpose.token
        after = dict(row.was)
        if seat is not None:
            after |= seat_columns(seat)
            after["asleep"] = asleep_column(self.line.get(row.token))
            after["fence"] = seat.fence or row.was["fence"]  # a new seat does not forget the last one's
        elif row.was["seat"]:
            after |= UNSEATED
        if mark is not None:
            after |= mark_columns(mark)
        event = self.events.get(row.token, "")
        after |= state_of(row, seat, mark, event, self.purpose)
        if own and self.purpose.by and after["state"] == "superseded":
            after["mark_by"] = self.purpose.by
        if own and (seat is not None or not row.id):
            after["name"] = self.purpose.name or row.was["name"] or self.name
        if own and seat is not None and not row.was["seat"]:
            after["place"] = self._next_place()
            after["counts"] = self.purpose.counts
        if own and self.purpose.call is not None and (not row.kept or self.purpose.renewed):
            after["call"] = self.purpose.call
        if after["state"] == "dead" and row.was["seat"] and row.was["args"]:
            after["call"] = row.was["args"]  # what a person sends again
        after |= self._moments(row, seat, after)
        return after

    def _moments(self, row: Row, seat: Seat | None, after: Columns) -> Columns:
        now = self.step.now
        if seat is not None:
            attention = seat.attention(now)
            if self.purpose.verb != "reap" and self._only_time_passed(row, after):
                attention = row.was["attention"]
            kept = row.kept or "call" in after
            publish_at = seat.until if kept and seat.waits else None
            return {"attention": attention, "publish_at": publish_at, "ended_at": None}
        if after["state"] == "pending":
            return {}  # not decided yet
        same = row.id and not row.was["seat"] and after["state"] == row.was["state"]
        return {"ended_at": row.was["ended_at"] if same else now, "publish_at": None}

    @staticmethod
    def _only_time_passed(row: Row, after: Columns) -> bool:
        return bool(row.id) and all(after[name] == row.was[name] for name in row.was if name != "refused")

    def _next_place(self) -> int:
        places: list[int] = [row.was["place"] for row in self.view.rows.values() if row.was["seat"]]
        return max([self.view.micros, *(place + 1 for place in places)])

    # --- keys ---

    def _give_keys(self, rows: dict[str, Row]) -> None:
        for name, holds in (("wait_key", self._waits), ("run_key", self._runs)):
            keepers = {token for token, row in rows.items() if row.was[name] and holds(row)}
            used = {seat_number(rows[token].was[name]) for token in keepers}
            for token in sorted(rows, key=lambda token: self.after[token]["place"]):
                if token in keepers:
                    continue
                key = None
                if holds(rows[token]):
                    number = next(n for n in range(len(rows) + 1) if n not in used)
                    used.add(number)
                    key = seat_key(self.view.ref.fingerprint, number)
                self.after[token][name] = key

    def _waits(self, row: Row) -> bool:
        seat = self.seats.get(row.token)
        return seat is not None and seat.state in self.after[row.token]["counts"]

    def _runs(self, row: Row) -> bool:
        seat = self.seats.get(row.token)
        if seat is None or seat.state != "R" or not seat.lease:
            return False
        new = row.token == self.purpose.token and self.purpose.gated
        return bool(row.was["run_key"]) or new

    # --- what a new waiting seat rests on ---

    def _enters(self, rows: dict[str, Row]) -> bool:
        token = self.purpose.token
        if self.purpose.verb != "acquire" or token not in rows:
            return False
        return bool(self.after[token]["wait_key"]) and not rows[token].was["seat"]

    def _lies_down(self, rows: dict[str, Row]) -> bool:
        token = self.purpose.token
        return token in rows and self.after[token]["asleep"] != rows[token].was["asleep"]

    def _rests_on(self, rows: dict[str, Row]) -> set[str]:
        """Return the tokens whose rows a positive decision must touch.

        A seat above the first stands on those below it, one that comes over others on those, and a place in
        the line on the runs in the way: whoever changes one of them at the same time must notice, or be
        noticed.
        """
        if self.purpose.verb == "asleep" and self._lies_down(rows):
            return {token for token, row in rows.items() if row.was["seat"] == "R"}
        if not self._enters(rows):
            return set()
        own = self.purpose.token
        number = seat_number(self.after[own]["wait_key"])
        below = {token for token, row in rows.items() if 0 <= seat_number(row.was["wait_key"]) < number}
        return {token for token in {*below, *self.seats[own].over} if rows[token].id and token != own}

    def _seen(self, changes: list[Change]) -> tuple[tuple[int, int], ...]:
        written = {change.row.id for change in changes}
        return tuple(
            (row.id, row.version + (row.id in written))
            for row in self.view.rows.values()
            if row.was["seat"] and row.token in self.seats and row.token != self.purpose.token
        )

    def _difference(self, row: Row) -> Columns:
        after = self.after[row.token]
        if not row.id:
            return after if row.token in self.seats or row.token in self.marks else {}
        return {name: value for name, value in after.items() if name not in row.was or row.was[name] != value}


def changes(view: View, step: Step, purpose: Purpose) -> Changes:
    """Return what a decision has changed."""
    return Comparison(view, step, purpose).changes()
