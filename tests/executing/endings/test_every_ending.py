"""Every ending in every pool: the next call runs when it should, and the store holds nothing of the job."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace

import celery
import pytest

from tests.rig.process import ROOT
from tests.rig.tables import Place, TablePage
from tests.rig.waiting import wait_for

from ..remains import Remains
from .rows import CELLS, ELSEWHERE, TOLD, Cell
from .seen import Seen
from .troupe import Troupe, stories
from .waits import tell_all

# All is played in the setup of the first test.
pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.alone]
WRITE = "JOBDEDUP_WRITE_DOCS"
PAGE = TablePage(ROOT / "docs" / "explanation" / "endings.md", "ending")
VERSION = tuple(int(part) for part in celery.__version__.split(".")[:2])
ALL = [
    pytest.param(
        cell,
        id=cell.name,
        marks=pytest.mark.skipif(not cell.is_known_to(VERSION), reason="needs a newer Celery"),
    )
    for cell in CELLS
]


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, players: Troupe) -> dict[Cell, Seen | Exception]:
    """What came of each selected cell; all of them are played side by side."""
    chosen = [item.callspec.params.get("cell") for item in request.session.items if hasattr(item, "callspec")]
    cells = [cell for cell in CELLS if cell in chosen and cell.is_known_to(VERSION)]
    found: dict[Cell, Seen | Exception] = {}
    for story, told in tell_all({story: players.play(story) for story in stories(cells)}).items():
        found |= (
            dict.fromkeys(story, told) if isinstance(told, Exception) else {seen.cell: seen for seen in told}
        )
    events = players.events()
    for seen in [seen for seen in found.values() if isinstance(seen, Seen)]:
        found[seen.cell] = replace(seen, state=seen.first.state, events=events.get(seen.first.id, ()))
    if os.environ.get(WRITE):
        PAGE.write({**_words(found.values()), **ELSEWHERE}, [*(cell.place for cell in CELLS), *ELSEWHERE])
    return found


def _words(found: Iterable[Seen | Exception]) -> dict[Place, str]:
    """What the page shall say; a cell that does not come out right keeps its words."""
    words = {}
    for seen in found:
        if isinstance(seen, Seen):
            with contextlib.suppress(AssertionError):
                words[seen.cell.place] = seen.words()
    return words


@pytest.fixture(scope="module")
def left(found: dict[Cell, Seen | Exception], players: Troupe) -> Remains:
    """What is in the store when all has ended."""
    ours = [seen.first.fingerprint for seen in found.values() if isinstance(seen, Seen)]

    def remains() -> Remains:
        now = players.lock_keys.remains()
        locks = tuple(key for key in now.locks if key.endswith(tuple(ours)))
        return replace(now, locks=locks, index=tuple(each for each in now.index if each in ours))

    with contextlib.suppress(AssertionError):  # the tests say whose lock it is
        wait_for(lambda: not remains().locks, 5, every=0.1)
    return remains()


@pytest.fixture
def seen(found: dict[Cell, Seen | Exception], cell: Cell) -> Seen:
    """What came of one cell; raises what went wrong there."""
    seen = found[cell]
    if isinstance(seen, Exception):
        raise seen
    return seen


@pytest.mark.parametrize("cell", ALL)
def test_the_outcome_is_the_one_that_the_page_states(seen: Seen, cell: Cell) -> None:
    """Only of the Celery that the page tells of; the other tests hold for all."""
    assert VERSION != TOLD or seen.words() == PAGE.committed().get(cell.place)


@pytest.mark.parametrize("cell", ALL)
def test_the_next_call_is_accepted_in_time_and_runs(seen: Seen, cell: Cell) -> None:
    """``freed()`` raises for a time that the ending does not explain."""
    assert seen.freed()
    assert len(seen.next) == cell.row.starts
    assert not seen.next or seen.next[-1].how == "returned"


@pytest.mark.parametrize("cell", ALL)
def test_never_two_at_once(seen: Seen, cell: Cell) -> None:
    assert not seen.overlaps


@pytest.mark.parametrize("cell", ALL)
def test_a_job_that_is_acked_late_is_never_lost_without_a_word(seen: Seen, cell: Cell) -> None:
    """It has run to an end of its own, or there is a result that says why not."""
    if cell.ack == "late":
        assert seen.state in ("SUCCESS", "FAILURE", "REVOKED") or seen.own[-1].how in ("Ignore", "Reject")


@pytest.mark.parametrize("cell", ALL)
def test_only_a_lost_run_is_noted_as_one(seen: Seen, cell: Cell) -> None:
    assert "lock_lost" not in seen.events
    assert "lost" not in seen.events or cell.row.loses


@pytest.mark.parametrize("cell", ALL)
def test_the_store_holds_nothing_of_it(seen: Seen, cell: Cell, left: Remains) -> None:
    fingerprint = seen.first.fingerprint
    assert fingerprint
    assert not [key for key in (*left.locks, *left.index) if key.endswith(fingerprint)]


def test_everything_that_stays_expires(left: Remains) -> None:
    assert left.eternal == ()


def test_the_page_has_a_table_for_each_group_and_no_other_cell() -> None:
    places = [*(cell.place for cell in CELLS), *ELSEWHERE]
    assert PAGE.names() == list(dict.fromkeys(table for table, _, _ in places))
    assert set(PAGE.committed()) == set(places)
