"""What one decision rests on: the rows of one lock at one moment of the server's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django_jobdedup.stores.database import statements
from django_jobdedup.stores.database.line import Sql
from django_jobdedup.stores.database.rows import Row, key_of, row_of
from django_jobdedup.stores.inprocess import upkeep
from django_jobdedup.stores.inprocess.seat import Entry
from django_jobdedup.stores.inprocess.step import Shelf, Step
from django_jobdedup.stores.record import Record, Ref


@dataclass(slots=True)
class View:
    """The rows with a seat, and that of the caller's own token, by token; ``micros`` is the moment."""

    ref: Ref
    micros: int
    fence: int = 0
    rows: dict[str, Row] = field(default_factory=dict)

    def row(self, token: str) -> Row:
        """Return the row of a token, a fresh one if there is none."""
        return self.rows.get(token) or Row(token)

    def step(self, grace: int) -> Step:
        """Return the shelf that the verbs work on."""
        shelf = Shelf(fence=self.fence)
        held = sorted((row for row in self.rows.values() if row.was["seat"]), key=lambda r: r.was["place"])
        seats = [seat for seat in (row.seat() for row in held) if seat is not None]
        if seats:
            name = next((row.was["name"] for row in reversed(held) if row.was["name"]), "")
            attention = min(row.was["attention"] for row in held)
            shelf.entries[self.ref.fingerprint] = Entry(self.ref, name, seats, attention)
        for row in self.rows.values():
            sleeper = row.sleeper()
            if sleeper is not None:
                shelf.lines.setdefault(self.ref.fingerprint, {})[row.token] = sleeper
            mark = row.mark()
            if mark is not None:
                shelf.marks[row.token] = mark
        return Step(shelf, self.micros, grace, keeps=True)


def look(sql: Sql, ref: Ref, token: str, *, fence: bool = False) -> View:
    """Read what a decision of ``token`` rests on, in one statement."""
    text = statements.read(sql.dialect, sql.clock, fence=fence)
    words = [ref.fingerprint, ref.fingerprint, key_of(token), *([ref.fingerprint] if fence else [])]
    view = View(ref, 0)
    for micros, *values in sql.rows(text, words):
        if values[1] is None:  # the last arm: no row has no version
            view.micros, view.fence = int(micros), int(values[0] or 0)
            continue
        row = row_of(tuple(values))
        view.rows[row.token] = row
    return view


def look_many(sql: Sql, owns: Sequence[tuple[Ref, str]]) -> list[View]:
    """Read what decisions over locks rest on, in one statement: a view a lock, in order of their first."""
    views = {ref.fingerprint: View(ref, 0) for ref, _ in owns}
    text = statements.read_many(sql.dialect, sql.clock, len(views), len(owns))
    pairs = [word for ref, token in owns for word in (ref.fingerprint, key_of(token))]
    now = 0
    for micros, fingerprint, *values in sql.rows(text, [*views, *pairs]):
        if fingerprint is None:
            now = int(micros)
            continue
        row = row_of(tuple(values))
        views[fingerprint].rows[row.token] = row
    for view in views.values():
        view.micros = now
    return list(views.values())


def listed(sql: Sql, found: Sequence[tuple[Ref, int]]) -> list[Record]:
    """Show the records that were found, with their moments of attention, in that order."""
    if not found:
        return []
    text = statements.read_held(sql.dialect, sql.clock, len(found))
    views = {ref.fingerprint: View(ref, 0) for ref, _ in found}
    for micros, fingerprint, *values in sql.rows(text, list(views)):
        row = row_of(tuple(values))
        views[fingerprint].rows[row.token] = row
        views[fingerprint].micros = int(micros)
    records = [upkeep.list_locks(view.step(0), 0.0, 1) for view in views.values()]
    return [record for some in records for record in some]
