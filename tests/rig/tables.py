"""A page of the docs whose tables are written by tests, and the prose around them by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NOT_THERE: Final = "–"
BLOCK: Final = re.compile(r"(<!-- table: (?P<name>[^>]*?) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)

Place = tuple[str, str, str]
"""Table, row, column."""


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page with ``<!-- table: name -->`` … ``<!-- end -->`` blocks; ``corner`` heads the first column."""

    path: Path
    corner: str

    def committed(self) -> dict[Place, str]:
        """Read the page: what its cells say; a cell with a dash is none."""
        return {place: words for place, words in self._cells() if words != NOT_THERE}

    def write(self, words: Mapping[Place, str], places: Iterable[Place]) -> None:
        """Put words into the cells of *places*, in this order; a cell without new words keeps its own."""
        known, order = {**self.committed(), **words}, list(places)

        def block(found: re.Match[str]) -> str:
            return f"{found[1]}{self._table(found['name'], order, known)}{found[4]}"

        self.path.write_text(BLOCK.sub(block, self._text()), encoding="utf-8")

    def names(self) -> list[str]:
        """The names of the tables, in order."""
        return [block["name"] for block in BLOCK.finditer(self._text())]

    def _text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def _cells(self) -> Iterator[tuple[Place, str]]:
        for block in BLOCK.finditer(self._text()):
            lines = [_split(line) for line in block["body"].splitlines() if line.startswith("|")]
            for row in lines[2:]:
                for column, words in zip(lines[0][1:], row[1:], strict=True):
                    yield (block["name"], row[0], column), words

    def _table(self, name: str, order: list[Place], words: Mapping[Place, str]) -> str:
        here = [place for place in order if place[0] == name]
        rows, columns = (list(dict.fromkeys(place[at] for place in here)) for at in (1, 2))
        lines = [[self.corner, *columns], ["---"] * (len(columns) + 1)]
        lines += [[row, *(words.get((name, row, column), NOT_THERE) for column in columns)] for row in rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _split(line: str) -> list[str]:
    return [word.strip() for word in line.strip().strip("|").split("|")]
