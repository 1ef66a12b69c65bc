"""``canvas="run"``: a call for which somebody holds a promise runs itself: every tail, every body.

The other modes, and all forms of a canvas, are in ``tests/canvas``.
"""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group
from kombu.utils.uuid import uuid

from django_jobdedup.dispatching.promises import is_promised
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import jobs

NODE = {"concurrency": 6}
WORLD = {"settings": {"JOBDEDUP_DEFAULTS": {"canvas": "run"}}}
WAIT = 40


@pytest.fixture(scope="module")
def started(node: Worker) -> dict[str, Any]:
    """All workflows, started at once: a job that meets a running equal one waits some seconds."""
    run = tasks.until_executed
    two_chains = [chain(run.si("head", 0.5), jobs.noticing.si(f"tail-{n}")).apply_async() for n in range(2)]
    return {
        "two chains": two_chains,
        "chain within": chain(run.si("twice", 0.2), run.si("twice", 0.2), jobs.noticing.si("end")).delay(),
        "group": group(run.si("member", 0.3) for _ in range(3)).apply_async(),
        "chord": chord([run.si("header", 0.3) for _ in range(3)], jobs.summing.s("body")).apply_async(),
        "two bodies": [
            chord([tasks.plain.si(f"part-{n}")], jobs.noticing.si("same body")).apply_async()
            for n in range(2)
        ],
        "links": [run.apply_async(("linked", 0.4), link=jobs.noticing.si(f"callback-{n}")) for n in range(2)],
        "errors": [
            tasks.raising.apply_async(("failing",), link_error=jobs.noticing.si(f"errback-{n}"))
            for n in range(2)
        ],
        "given ids": [run.apply_async(("given", 0.4), task_id=task_id) for task_id in (uuid(), uuid())],
    }


def test_the_tail_of_each_chain_runs_when_two_share_their_head(
    started: dict[str, Any], diary: Journal
) -> None:
    first, second = started["two chains"]
    assert [first.get(timeout=WAIT), second.get(timeout=WAIT)] == ["tail-0", "tail-1"]
    assert sorted(run.id for run in diary.runs("head")) == sorted([first.parent.id, second.parent.id])
    assert diary.overlaps("head") == []


def test_a_chain_with_two_equal_steps_comes_to_its_end(started: dict[str, Any], diary: Journal) -> None:
    assert started["chain within"].get(timeout=WAIT) == "end"
    assert len(diary.runs("twice")) == 2
    assert diary.overlaps("twice") == []


def test_a_group_of_equal_members_is_ready(started: dict[str, Any], diary: Journal) -> None:
    assert started["group"].get(timeout=WAIT) == ["member"] * 3
    assert started["group"].ready()
    assert started["group"].successful()
    assert diary.overlaps("member") == []


def test_the_body_of_a_chord_of_equal_members_runs_once(started: dict[str, Any], diary: Journal) -> None:
    assert started["chord"].get(timeout=WAIT) == 3
    assert len(diary.runs("body")) == 1
    assert diary.overlaps("header") == []


def test_equal_bodies_of_two_chords_both_run(started: dict[str, Any], diary: Journal) -> None:
    assert [result.get(timeout=WAIT) for result in started["two bodies"]] == ["same body"] * 2
    assert len(diary.runs("same body")) == 2
    assert diary.overlaps("same body") == []


def test_a_callback_of_each_call_runs(started: dict[str, Any], diary: Journal) -> None:
    assert [result.get(timeout=WAIT) for result in started["links"]] == ["linked"] * 2
    for number in range(2):
        diary.wait_for_ends(1, f"callback-{number}")
    assert diary.overlaps("linked") == []


def test_an_errback_of_each_call_runs(started: dict[str, Any], diary: Journal) -> None:
    for result in started["errors"]:
        with pytest.raises(tasks.JobError):
            result.get(timeout=WAIT)
    for number in range(2):
        diary.wait_for_ends(1, f"errback-{number}")


def test_an_id_that_the_caller_gave_is_kept(started: dict[str, Any], diary: Journal) -> None:
    first, second = started["given ids"]
    assert [first.outcome, second.outcome] == ["accepted", "bypassed"]
    assert first.id != second.id
    assert [app.AsyncResult(result.id).get(timeout=WAIT) for result in (first, second)] == ["given"] * 2
    assert sorted(run.id for run in diary.runs("given")) == sorted([first.id, second.id])
    assert diary.overlaps("given") == []


def test_a_second_dispatch_of_one_given_id_runs_once(node: Worker, diary: Journal, key: str) -> None:
    """An id is one job: a caller that is not sure whether its call went out may repeat it."""
    task_id = uuid()
    results = [tasks.until_executed.apply_async((key, 0.3), task_id=task_id) for _ in range(2)]
    assert {result.id for result in results} == {task_id}
    assert [result.duplicate for result in results] == [False, True]
    assert app.AsyncResult(task_id).get(timeout=WAIT) == key
    again = tasks.until_executed.delay(key)
    assert again.get(timeout=WAIT) == key
    assert [run.id for run in diary.runs(key)] == [task_id, again.id]


def test_a_promised_call_is_known_by_its_options() -> None:
    assert not is_promised({"queue": "q", "countdown": 3, "link": [], "chain": None})
    for name in ("task_id", "chain", "chord", "group_id", "link", "link_error"):
        assert is_promised({name: ["x"]})
