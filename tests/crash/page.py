"""The page of the matrix: the tables in it are written by the test, the prose around them by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.crash.cells import CELLS, Cell
from tests.rig.process import ROOT

PAGE: Path = ROOT / "docs" / "explanation" / "crash-matrix.md"
NOT_THERE = "–"
BLOCK = re.compile(r"(<!-- table: (?P<name>[^>]*?) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)


def committed() -> dict[tuple[str, str, str], str]:
    """Read the page: (table, row, column) to words."""
    found: dict[tuple[str, str, str], str] = {}
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        lines = [_split(line) for line in block["body"].splitlines() if line.startswith("|")]
        for row in lines[2:]:
            for column, words in zip(lines[0][1:], row[1:], strict=True):
                found[block["name"], row[0], column] = words
    return {place: words for place, words in found.items() if words != NOT_THERE}


def write(words: Mapping[Cell, str]) -> None:
    """Put the measured words into the page, table by table; cells without new words keep their old ones."""
    all_words = committed() | {(cell.table, cell.row, cell.column): text for cell, text in words.items()}

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}{table(found['name'], all_words)}{found[4]}"

    PAGE.write_text(BLOCK.sub(block, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def table(name: str, words: Mapping[tuple[str, str, str], str]) -> str:
    """Make one table; a cell that does not exist has a dash."""
    cells = [cell for cell in CELLS if cell.table == name]
    rows, columns = (list(dict.fromkeys(getattr(cell, what) for cell in cells)) for what in ("row", "column"))
    lines = [["killed", *columns], ["---"] * (len(columns) + 1)]
    lines += [[row, *(words.get((name, row, column), NOT_THERE) for column in columns)] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables() -> list[str]:
    """The names of the tables in the page."""
    return [block["name"] for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


def _split(line: str) -> list[str]:
    return [word.strip() for word in line.strip().strip("|").split("|")]
