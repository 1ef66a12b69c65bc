"""The page of the matrix: the tables in it are written by the test, the prose around them by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.crash.cells import CELLS, Cell
from tests.rig.process import ROOT
from tests.rig.tables import Place, TablePage

PAGE: Final = TablePage(ROOT / "docs" / "explanation" / "crash-matrix.md", "killed")


def committed() -> dict[Place, str]:
    """Read the page: (table, row, column) to words."""
    return PAGE.committed()


def write(words: Mapping[Cell, str]) -> None:
    """Put the measured words into the page; cells without new words keep their old ones."""
    PAGE.write({_place(cell): text for cell, text in words.items()}, [_place(cell) for cell in CELLS])


def tables() -> list[str]:
    """The names of the tables in the page."""
    return PAGE.names()


def _place(cell: Cell) -> Place:
    return cell.table, cell.row, cell.column
