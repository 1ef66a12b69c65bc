"""A start that meets a running job: skipped, logged or put off."""

from __future__ import annotations

import itertools
import re
import time
from datetime import datetime
from typing import Any

import pytest
from celery import chain, chord

from tests.rig.waiting import wait_for

from . import tasks
from .conftest import Outcome, Stage, Stories, new_key

pytestmark = pytest.mark.worker

stories = Stories()


def _beside(stage: Stage, task: Any, seconds: float = 1.0) -> tuple[str, Any]:
    """Start a job that runs for a while; give its key and its result."""
    key = new_key()
    holder = task.delay(key, seconds)
    wait_for(lambda: stage.runs(key), 10, every=0.05)
    return key, holder


@stories.tell
def skipped_in_a_chain(stage: Stage) -> dict[str, Any]:
    """A skipped step, and the step behind it."""
    key, holder = _beside(stage, tasks.skipping)
    last = chain(tasks.skipping.s(key), tasks.following.s(key)).apply_async()
    value = last.get(timeout=10)
    holder.get(timeout=10)
    after = tasks.skipping.delay(key).get(timeout=10)
    return {"value": value, "holder": holder.id, "state": last.parent.state, "after": after, "key": key}


def test_a_skipped_start_ends_as_success_and_the_chain_goes_on(outcome: Outcome, stage: Stage) -> None:
    seen = outcome(skipped_in_a_chain)
    assert seen["value"] == {"suppressed_by": seen["holder"]}
    assert seen["state"] == "SUCCESS"
    assert seen["after"] == seen["key"], "a later call runs"
    assert len(stage.journal.runs(seen["key"])) == 2


@stories.tell
def skipped_in_a_chord(stage: Stage) -> dict[str, Any]:
    """A skipped member, one that runs, and the body."""
    key, holder = _beside(stage, tasks.skipping)
    value = chord([tasks.skipping.s(key), tasks.other.s(f"{key}-other")], tasks.total.s()).apply_async()
    return {"value": value.get(timeout=10), "holder": holder.id, "key": key}


def test_a_skipped_member_counts_in_its_chord(outcome: Outcome) -> None:
    """Case U40: the body runs once, with a documented value in the place of the member's."""
    seen = outcome(skipped_in_a_chord)
    assert seen["value"] == [{"suppressed_by": seen["holder"]}, f"{seen['key']}-other"]


@stories.tell
def logged(stage: Stage) -> dict[str, Any]:
    """The strategy log."""
    key, holder = _beside(stage, tasks.logging)
    second = tasks.logging.delay(key)
    return {"value": second.get(timeout=10), "id": second.id, "holder": holder.id}


def test_log_skips_a_start_with_a_warning(outcome: Outcome, stage: Stage) -> None:
    seen = outcome(logged)
    assert seen["value"] == {"suppressed_by": seen["holder"]}
    lines = [line for line in stage.worker.log.splitlines() if "does not run" in line]
    (line,) = [line for line in lines if seen["id"] in line]
    assert "WARNING" in line
    assert seen["holder"] in line


def test_skip_says_nothing(outcome: Outcome, stage: Stage) -> None:
    seen = outcome(skipped_in_a_chain)
    assert not any(seen["holder"] in line for line in stage.worker.log.splitlines() if "does not run" in line)


@stories.tell
def put_off_again_and_again(stage: Stage) -> dict[str, Any]:
    """A job that is put off while another runs for six seconds."""
    key, holder = _beside(stage, tasks.patient, 6.0)
    second = tasks.patient.delay(key)
    retries = second.get(timeout=20)
    holder.get(timeout=10)
    return {"id": second.id, "retries": retries, "runs": stage.journal.runs(key)}


def test_the_delay_of_a_put_off_doubles(outcome: Outcome, stage: Stage) -> None:
    """After half a second, then one, two, four, each spread by a fifth."""
    id = outcome(put_off_again_and_again)["id"]
    ignored = _times(stage.worker.log, rf"\[{id}\] ignored")
    received = _times(stage.worker.log, rf"\[{id}\] received")
    # Celery receives a put-off message at once and starts it at its eta, where it is ignored again. The last
    # one may still sleep: the end of the other run has woken the job by a second message.
    pauses = [after - before for before, after in itertools.pairwise(ignored[:4])]
    for pause, planned in zip(pauses, (0.5, 1.0, 2.0), strict=True):
        assert planned * 0.8 - 0.1 < pause < planned * 1.2 + 0.7
    assert len(received) == 6


def test_put_offs_leave_the_retries_alone(outcome: Outcome) -> None:
    seen = outcome(put_off_again_and_again)
    assert seen["retries"] == 0
    first, second = seen["runs"]
    assert not first.overlaps(second)
    assert second.attempt == 1


def _times(log: str, pattern: str) -> list[float]:
    found = [line for line in log.splitlines() if re.search(pattern, line)]
    return [datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f").timestamp() for line in found]


@stories.tell
def put_off_chord_members(stage: Stage) -> dict[str, Any]:
    """A chord of four members for one mutex, and its body."""
    key = new_key()
    members = [tasks.mutex.s(key, 0.5) for _ in range(4)]
    value = chord(members, tasks.total.s()).apply_async().get(timeout=20)
    return {"value": value, "key": key}


def test_put_off_members_complete_their_chord(outcome: Outcome, stage: Stage) -> None:
    seen = outcome(put_off_chord_members)
    assert seen["value"] == [seen["key"]] * 4
    runs = stage.journal.runs(seen["key"])
    assert len(runs) == 4
    assert stage.journal.overlaps(seen["key"]) == []
    lines = [line for line in stage.worker.log.splitlines() if line.endswith(" ignored")]
    assert any(run.id in line for run in runs for line in lines), "some member was put off"


def test_what_is_put_off_holds_no_process_of_the_pool(stage: Stage) -> None:
    """Three times as many jobs wait for a mutex as the pool has processes; another job runs at once."""
    key, holder = _beside(stage, tasks.mutex, 3.0)
    waiting = [tasks.mutex.delay(key) for _ in range(30)]
    time.sleep(0.5)
    begun = time.monotonic()
    assert tasks.looking_without_a_policy.delay(key).get(timeout=10) is True
    assert time.monotonic() - begun < 1.5
    assert len(stage.journal.runs(key)) == 1
    holder.get(timeout=10)
    for each in waiting:
        each.get(timeout=30)
    assert len(stage.journal.runs(key)) == 31
    assert stage.journal.overlaps(key) == []
