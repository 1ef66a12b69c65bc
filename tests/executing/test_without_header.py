"""Messages without a header that this version reads: foreign senders, other versions, bypasses (case U10)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_jobdedup.header import HEADER
from tests.rig.beat import WITHOUT_TASKS, Beat
from tests.rig.process import ROOT
from tests.rig.waiting import wait_for

from . import tasks
from .conftest import Outcome, Stage, Stories, call_until_accepted, new_key, send_raw

pytestmark = pytest.mark.worker

stories = Stories()


@pytest.fixture(scope="module")
def before(stage: Stage) -> tuple[str, ...]:
    """What other modules have left on the stage: locks that lapse by their TTL stay until a reaper comes."""
    return stage.lock_keys.remains().locks


@pytest.fixture(scope="module")
def outcome(stage: Stage, before: tuple[str, ...]) -> Iterator[Outcome]:
    """Tell all stories side by side."""
    with stories.begin(stage) as told:
        yield told


def _received(stage: Stage, id: str) -> None:
    wait_for(lambda: f"[{id}] received" in stage.worker.log, 10, every=0.05)
    time.sleep(0.05)


@stories.tell
def two_raw_sends(stage: Stage) -> dict[str, Any]:
    """Two messages of one call from a sender without the app, then a call from one with it."""
    key = new_key()
    first = send_raw(tasks.early.name, key, "succeed", 3.0)
    second = send_raw(tasks.early.name, key, "succeed", 3.0)
    _received(stage, second.id)
    hooked = tasks.early.delay(key)
    value = second.get(timeout=10)
    assert first.get(timeout=10) == key
    again = call_until_accepted(lambda: tasks.early.delay(key), timeout=1)
    again.get(timeout=10)
    return {
        "first": first.id, "value": value, "hooked": (hooked.duplicate, hooked.id), "again": again.id,
        "runs": stage.journal.runs(key),
    }  # fmt: skip


def test_of_two_raw_sends_one_runs_and_the_other_is_suppressed(outcome: Outcome) -> None:
    seen = outcome(two_raw_sends)
    assert [run.id for run in seen["runs"]] == [seen["first"], seen["again"]]
    assert seen["value"] == {"suppressed_by": seen["first"]}


def test_a_call_is_refused_by_a_raw_one_that_a_worker_has_received(outcome: Outcome) -> None:
    seen = outcome(two_raw_sends)
    assert seen["hooked"] == (True, seen["first"])


@stories.tell
def raw_mutex(stage: Stage) -> str:
    """Two raw sends of a mutex."""
    key = new_key()
    results = [send_raw(tasks.mutex.name, key, 0.5) for _ in range(2)]
    for result in results:
        assert result.get(timeout=10) == key
    return key


def test_raw_sends_of_a_mutex_run_one_after_the_other(outcome: Outcome, stage: Stage) -> None:
    key = outcome(raw_mutex)
    assert len(stage.journal.runs(key)) == 2
    assert stage.journal.overlaps(key) == []


@stories.tell
def raw_eta(stage: Stage) -> dict[str, Any]:
    """A raw send with a countdown beyond the TTL; a call after the TTL."""
    key = new_key()
    first = send_raw(tasks.short_lived.name, key, countdown=4)
    _received(stage, first.id)
    time.sleep(2.0)
    second = tasks.short_lived.delay(key)
    first.get(timeout=10)
    return {"first": first.id, "second": (second.duplicate, second.id)}


def test_a_raw_send_with_an_eta_waits_from_its_eta(outcome: Outcome) -> None:
    seen = outcome(raw_eta)
    assert seen["second"] == (True, seen["first"])


@stories.tell
def raw_chain_steps(stage: Stage) -> Any:
    """A raw send that a link waits for is never dropped."""
    key = new_key()
    first = send_raw(tasks.early.name, key, "succeed", 1.0)
    second = send_raw(tasks.early.name, key, "succeed", 0.2, link=tasks.following.s(key))
    return [first.get(timeout=10), second.get(timeout=10), len(stage.journal.runs(key)), key]


def test_a_raw_send_with_a_link_follows_the_other(outcome: Outcome) -> None:
    first, second, number, key = outcome(raw_chain_steps)
    assert (first, second, number) == (key, key, 1)


@stories.tell
def bare_process(stage: Stage) -> str:
    """A process without Django and without the tasks sends the same call by name, twice."""
    key = new_key()
    code = (
        "from tests.jobs.bare import app\n"
        f"for _ in range(2): app.send_task({tasks.early.name!r}, ({key!r}, 'succeed', 1.0))\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=stage.environment.for_process(), check=True, timeout=30
    )
    stage.journal.wait_for_ends(1, key)
    time.sleep(0.5)
    return key


def test_a_bare_process_that_sends_twice_causes_one_run(outcome: Outcome, stage: Stage) -> None:
    assert len(stage.journal.runs(outcome(bare_process))) == 1


WORKER_TASK = tasks.MODULE + ".early"


def test_beat_that_does_not_know_the_task_causes_one_run_at_a_time(stage: Stage, tmp_path: Path) -> None:
    key = new_key()
    schedule = {"often": {"task": WORKER_TASK, "schedule": 0.3, "args": [key, "succeed", 1.5]}}
    with Beat(stage.environment, tmp_path, schedule, app=WITHOUT_TASKS) as beat:
        beat.wait_until_ready()
        stage.journal.wait_for_ends(2, key, timeout=15)
        assert beat.running
        sent = beat.log.count("Sending due task")
    assert sent >= 7
    runs = stage.journal.runs(key)
    assert len(runs) <= 4
    assert stage.journal.overlaps(key) == []
    assert "ERROR" not in beat.log


UNREADABLE = {
    "no mapping": lambda id: "garbage",
    "no id": lambda id: {"v": 1},
    "the id of another": lambda id: {"v": 1, "id": "another", "k": [["0" * 64, {}]]},
    "no list of locks": lambda id: {"v": 1, "id": id, "k": "garbage"},
    "wrong knobs": lambda id: {"v": 1, "id": id, "k": [["0" * 64, {"e": "soon", "t": None}]]},
    "a shard of letters": lambda id: {"v": 1, "id": id, "s": "x", "k": []},
}


@pytest.fixture(scope="module")
def unreadable(stage: Stage) -> dict[str, dict[str, Any]]:
    """Send a message with each, and an equal call while it runs."""
    sent = {}
    for name, header in UNREADABLE.items():
        key, id = new_key(), f"unreadable-{new_key()}"
        send_raw(tasks.early.name, key, "succeed", 1.0, task_id=id, headers={HEADER: header(id)})
        sent[name] = {"key": key, "id": id}
    for one in sent.values():
        stage.journal.wait_for_runs(1, one["key"])
        second = tasks.early.delay(one["key"])
        one["second"] = (second.duplicate, second.id)
    return sent


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_header_that_cannot_be_read_counts_as_none(
    unreadable: dict[str, dict[str, Any]], name: str, stage: Stage
) -> None:
    """The message runs, once, under a lock that the worker takes for it."""
    one = unreadable[name]
    stage.journal.wait_for_ends(1, one["key"])
    assert one["second"] == (True, one["id"])
    assert [run.id for run in stage.journal.runs(one["key"])] == [one["id"]]


@stories.tell
def policy_known_to_the_sender_only(stage: Stage) -> dict[str, Any]:
    """The worker's task has no policy (any more); the header tells all."""
    key = new_key()
    policy = tasks.declared()
    first = tasks.other.apply_async((key, 1.0), unique=policy)
    wait_for(lambda: stage.runs(key), 10, every=0.05)
    second = tasks.other.apply_async((key, 1.0), unique=policy)
    first.get(timeout=10)
    third = tasks.other.apply_async((key,), unique=policy)
    third.get(timeout=10)
    return {
        "second": (second.duplicate, second.id == first.id), "third": third.duplicate,
        "runs": len(stage.journal.runs(key)),
    }  # fmt: skip


def test_a_worker_that_does_not_know_the_policy_honours_the_header(outcome: Outcome) -> None:
    seen = outcome(policy_known_to_the_sender_only)
    assert seen == {"second": (True, True), "third": False, "runs": 2}


@stories.tell
def bypassing(stage: Stage) -> dict[str, Any]:
    """``unique=False`` beside a locked run: at dispatch and at start."""
    key = new_key()
    holder = tasks.early.delay(key, "succeed", 1.5)
    wait_for(lambda: stage.runs(key), 10, every=0.05)
    beside = [tasks.early.apply_async((key, "succeed", 0.3), unique=False) for _ in range(2)]
    for each in beside:
        each.get(timeout=10)
    refused = tasks.early.delay(key)
    holder.get(timeout=10)
    return {
        "outcomes": [each.outcome for each in beside],
        "refused": (refused.duplicate, refused.id == holder.id),
        "runs": stage.journal.runs(key),
    }  # fmt: skip


def test_a_bypass_goes_past_the_lock_and_leaves_it_alone(outcome: Outcome) -> None:
    seen = outcome(bypassing)
    assert seen["outcomes"] == ["bypassed", "bypassed"]
    holder, *beside = seen["runs"]
    assert len(beside) == 2
    assert all(holder.overlaps(run) for run in beside)
    assert seen["refused"] == (True, True)


def test_nothing_is_left(
    outcome: Outcome, unreadable: dict[str, Any], before: tuple[str, ...], stage: Stage
) -> None:
    stage.lock_keys.wait_until_empty(10, but=before)
