"""Everything that is measured for the page, once for all tests of it."""

from __future__ import annotations

from typing import Final

from tests.crash.cells import CELLS, Cell
from tests.crash.encounters import ENCOUNTERS, Encounter
from tests.crash.lock_cells import LOCK_CELLS

EVERY: Final[tuple[Cell | Encounter, ...]] = (*CELLS, *LOCK_CELLS, *ENCOUNTERS)
