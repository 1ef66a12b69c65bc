"""Two equal calls meet and a process dies over it, under every strategy; these tests hold the page to it."""

from __future__ import annotations

import pytest

from tests.crash import page
from tests.crash.cells import ENGINES
from tests.crash.encounters import ENCOUNTERS, Encounter
from tests.crash.met import DROPPING, Met

pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.alone]
ALL = [pytest.param(cell, id=cell.name) for cell in ENCOUNTERS]


@pytest.mark.parametrize("cell", ALL)
def test_the_outcome_is_the_one_that_the_page_states(finding: Met, cell: Encounter) -> None:
    assert finding.words() == page.stated(page.committed(), cell)


@pytest.mark.parametrize("cell", ALL)
def test_never_two_at_once(finding: Met, cell: Encounter) -> None:
    """P3."""
    assert not finding.overlaps


@pytest.mark.parametrize("cell", ALL)
def test_each_call_that_was_taken_is_covered_or_its_end_is_seen(finding: Met, cell: Encounter) -> None:
    """P1: a whole run starts after the call, with its arguments or newer ones."""
    for job in (finding.older, finding.newcomer):
        if finding.accepted(job) and not finding.covered(job):
            assert finding.seen(job) or is_dropped(cell, job is finding.newcomer)


def is_dropped(cell: Encounter, is_newcomer: bool) -> bool:
    """Whether nobody hears of a job: ``skip`` drops it anyway, or the lock knows nothing before a start."""
    early = cell.dies == "newcomer" and cell.ack == "early"
    unknown = early and cell.lock == "while_executing" and cell.store not in ENGINES
    return is_newcomer and cell.dies == "newcomer" and (cell.strategy in DROPPING or unknown)


@pytest.mark.parametrize("cell", ALL)
def test_with_late_ack_no_call_is_lost(finding: Met, cell: Encounter) -> None:
    if cell.ack == "late":
        for job in (finding.older, finding.newcomer):
            ended = job.dead or job.result == "SUCCESS" or is_dropped(cell, job is finding.newcomer)
            assert not finding.accepted(job) or finding.covered(job) or ended


@pytest.mark.parametrize("cell", ALL)
def test_a_job_whose_end_was_on_record_does_not_start_again(finding: Met, cell: Encounter) -> None:
    """P6."""
    if finding.finished:
        assert not finding.again(finding.newcomer)


@pytest.mark.parametrize("cell", ALL)
def test_when_all_is_over_the_next_call_runs_once_and_nothing_is_left(finding: Met, cell: Encounter) -> None:
    """P4 and P5."""
    assert [run.how for run in finding.next] == ["returned"]
    assert finding.left is None
    assert not finding.indexed
