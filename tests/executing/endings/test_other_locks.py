"""The lock types that a run frees: whatever the ending, in every pool, the next call runs and nothing stays.

``until_executed`` has a table of its own, ``until_expired`` is in ``test_outliving.py``; kills of a worker
are in the crash matrix, for every lock type.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import pytest
from celery.result import AsyncResult

from django_jobdedup import peek
from testproject.celery import app
from tests.rig.journal import Run

from ..conftest import new_key
from .rows import TOLD
from .test_outliving import BROKEN, ROWS, VERSION, Cell, begin, staged
from .troupe import Troupe
from .waits import Story, tell_all, until

# All is played in the setup of the first test.
pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.alone]

KINDS: Final = ("starting", "one_at_a_time", "one_and_one")
CELLS: Final = [
    Cell(row, pool, ack, kind)
    for row in ROWS
    if not row.kills
    for ack in row.acks
    for pool in row.pools
    for kind in KINDS
]
NEEDS_NEWER: Final = {(cell.row, cell.pool, cell.ack) for cell in BROKEN}
ALL: Final = [
    pytest.param(
        cell,
        id=cell.name,
        marks=pytest.mark.skipif(
            (cell.row, cell.pool, cell.ack) in NEEDS_NEWER and VERSION < TOLD, reason="needs a newer Celery"
        ),
    )
    for cell in CELLS
]


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a cell: the first job, the call after it, and all runs of the key."""

    first: AsyncResult
    after: AsyncResult
    runs: list[Run]


def _told(players: Troupe, cell: Cell) -> Story[Seen]:
    key = new_key()
    scene, first = yield from begin(players, cell, key)
    queue, worker = scene.queue, scene.worker
    if cell.alone:
        yield from until(lambda: not worker.running, 30, "its end")
        app.control.add_consumer(queue, destination=[players.standing[cell.pool].name])
    after = first
    while after.id == first.id:  # one may wait at a time
        yield
        after = cell.task.apply_async((key,), queue=queue)
    yield from until(after.ready, 45, "the next call")
    yield from until(lambda: not peek(first), 45, "a lock that is free")
    return Seen(first, after, [run for run in players.journal.runs() if run.key == key])


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, players: Troupe) -> dict[Cell, Seen | Exception]:
    """What came of each selected cell; all of them are played side by side."""
    chosen = [item.callspec.params.get("cell") for item in request.session.items if hasattr(item, "callspec")]
    return tell_all({cell: staged(players, cell, _told(players, cell)) for cell in CELLS if cell in chosen})


@pytest.mark.parametrize("cell", ALL)
def test_the_next_call_runs_and_nothing_stays(found: dict[Cell, Seen | Exception], cell: Cell) -> None:
    seen = found[cell]
    if isinstance(seen, Exception):
        raise seen
    assert [run.how for run in seen.runs if run.id == seen.after.id] == ["returned"]
    if cell.kind != "starting":
        assert not [pair for pair in combinations(seen.runs, 2) if pair[0].overlaps(pair[1])]
