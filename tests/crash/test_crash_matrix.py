"""The crash matrix: each cell kills a process for real; the page states the outcome, these tests hold it."""

from __future__ import annotations

import pytest

from tests.crash import page
from tests.crash.cells import CELLS, LEASE, VISIBILITY, Cell
from tests.crash.finding import Finding
from tests.crash.lock_cells import LOCK_CELLS
from tests.crash.matrix import EVERY

pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.alone]
ALL = [pytest.param(cell, id=cell.name) for cell in (*CELLS, *LOCK_CELLS)]


@pytest.mark.parametrize("cell", ALL)
def test_the_outcome_is_the_one_that_the_page_states(finding: Finding, cell: Cell) -> None:
    assert finding.words() == page.stated(page.committed(), cell)


@pytest.mark.parametrize("cell", ALL)
def test_never_two_at_once(finding: Finding, cell: Cell) -> None:
    """P3, where the lock has a gate."""
    assert not cell.gated or not finding.overlaps


@pytest.mark.parametrize("cell", ALL)
def test_accepted_work_is_done_or_its_end_is_seen(finding: Finding, cell: Cell) -> None:
    """P1. With late ack the work is done; with early ack, as the user chose, a lost one is at least seen."""
    accepted = finding.places or finding.own or cell.side != "sender"
    if not accepted or finding.whole:
        return
    assert cell.ack != "late, rejected"
    if cell.ack == "late":
        assert cell.side == "pool", "with late ack only a lost pool process ends a job without a whole run"
        assert finding.result == "FAILURE"
    elif cell.lock != "while_executing" or cell.point != "before claim":  # no seat yet: nobody knows of it
        assert finding.events or finding.result == "FAILURE"


@pytest.mark.parametrize("cell", ALL)
def test_a_job_that_runs_again_does_so_soon(finding: Finding, cell: Cell) -> None:
    """Within visibility timeout, sweep, lease and one hop of a put-off."""
    longest = max(VISIBILITY + 1 + LEASE + VISIBILITY / 3, cell.countdown, cell.next + VISIBILITY)
    longest = max(longest, cell.ttl or 0) + 5
    assert all(run.started - finding.struck <= longest for run in finding.again[:1])


@pytest.mark.parametrize("cell", ALL)
def test_the_next_call_is_accepted_and_runs_once(finding: Finding, cell: Cell) -> None:
    """P4: ``freed()`` raises for a time beyond lease, pending time and redelivery."""
    assert finding.freed()
    assert [run.how for run in finding.next] == ["returned"]


@pytest.mark.parametrize("cell", ALL)
def test_while_the_key_is_held_callers_get_the_id_of_the_holder(finding: Finding, cell: Cell) -> None:
    assert finding.refused_by <= {finding.id}


@pytest.mark.parametrize("cell", ALL)
def test_a_job_whose_end_was_reported_never_starts_again(finding: Finding, cell: Cell) -> None:
    """P6."""
    if finding.finished:
        assert not finding.again


@pytest.mark.parametrize("cell", ALL)
def test_nothing_is_left_of_the_lock(finding: Finding, cell: Cell) -> None:
    """P5: nothing but markers, which expire, and what is kept until its TTL."""
    if finding.left is None:
        assert not finding.indexed
        return
    assert cell.keeps, finding.left
    assert {holder.state for holder in finding.left.holders} == {"K"}


def test_the_page_has_a_table_for_each_group_of_cells_and_no_other_cell() -> None:
    words = page.committed()
    assert page.tables() == list(dict.fromkeys(cell.table for cell in EVERY))
    assert all(page.stated(words, cell) for cell in EVERY)
    assert set(words) <= {place for cell in EVERY for place in page.places(cell)}
