"""The page of the matrix: the tables in it are written by the test, the prose around them by hand.

A row stands once where it says the same on every store, else once for Redis and once for the databases, which
must say the same among themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from tests.crash.cells import REDIS, SQLITE, UNATTENDED
from tests.rig.process import ROOT
from tests.rig.tables import Place, TablePage

PAGE: Final = TablePage(ROOT / "docs" / "explanation" / "crash-matrix.md", "killed")
KINDS: Final = {REDIS: ", Redis", SQLITE: ", database"}
"""The stores of which the page tells, and what stands behind the row of one."""


class Placed(Protocol):
    """A cell: its place in the page, and its store."""

    @property
    def table(self) -> str: ...

    @property
    def row(self) -> str: ...

    @property
    def column(self) -> str: ...

    @property
    def store(self) -> str: ...


def committed() -> dict[Place, str]:
    """Read the page: (table, row, column) to words."""
    return PAGE.committed()


def stated(words: Mapping[Place, str], cell: Placed) -> str | None:
    """Give what the page says of a cell."""
    return next((words[place] for place in places(cell) if place in words), None)


def places(cell: Placed) -> list[Place]:
    """Give where a cell may stand: in a row for its kind of store, or in one for every store."""
    return [(cell.table, row, cell.column) for row in (cell.row + _kind(cell), cell.row)]


def write(found: Mapping[Placed, str], cells: Iterable[Placed]) -> None:
    """Put the measured words into the page; cells without new words keep their old ones."""
    known, order = committed(), [cell for cell in cells if cell.store in (UNATTENDED, *KINDS)]
    words = {cell: found.get(cell, stated(known, cell)) for cell in order}
    rows: dict[tuple[str, str], dict[tuple[str, str], str | None]] = {}
    for cell, text in words.items():
        rows.setdefault((cell.table, cell.row), {})[_kind(cell), cell.column] = text
    new: dict[Place, str] = {}
    for (table, row), texts in rows.items():
        kinds = dict.fromkeys(kind for kind, _ in texts)
        columns = dict.fromkeys(column for _, column in texts)
        same = all(len({texts[kind, column] for kind in kinds}) == 1 for column in columns)
        for kind in [""] if same else kinds:
            for column in columns:
                text = texts.get((kind, column)) or texts.get((next(iter(kinds)), column)) or ""
                new[table, row + kind, column] = text
    PAGE.write({place: text for place, text in new.items() if text}, new)


def tables() -> list[str]:
    """The names of the tables in the page."""
    return PAGE.names()


def _kind(cell: Placed) -> str:
    return "" if cell.store == UNATTENDED else KINDS.get(cell.store, KINDS[SQLITE])
