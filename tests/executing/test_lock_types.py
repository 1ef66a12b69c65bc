"""The lock types in a running worker."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from tests.rig.journal import Run
from tests.rig.waiting import wait_for

from . import tasks
from .conftest import Outcome, Stage, Stories, call_until_accepted, new_key

pytestmark = pytest.mark.worker

stories = Stories()


def _most_at_once(runs: list[Run]) -> int:
    """Count the most bodies that were alive at one moment: at some start."""
    return max(
        sum(other.started <= run.started < (other.ended or other.seen) for other in runs) for run in runs
    )


@stories.tell
def two_at_a_barrier(stage: Stage) -> list[Run]:
    """Two threads call a mutex at one moment, ten times, each time another key."""
    barrier = Barrier(2)
    keys = [new_key("barrier") for _ in range(10)]

    def call() -> list[Any]:
        results = []
        for key in keys:
            barrier.wait()
            results.append(tasks.mutex.delay(key, 0.1))
        return results

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        results = [result for each in calls for result in each.result()]
    for result in results:
        result.get(timeout=20)
    return [run for run in stage.journal.runs() if run.key in keys]


def test_two_mutex_jobs_from_a_barrier_run_one_after_the_other(outcome: Outcome, stage: Stage) -> None:
    runs = outcome(two_at_a_barrier)
    assert len(runs) == 20
    assert all(stage.journal.overlaps(key) == [] for key in {run.key for run in runs})


@stories.tell
def twenty_for_a_mutex(stage: Stage) -> list[Run]:
    """Twenty jobs for one key."""
    key = new_key()
    results = [tasks.mutex.delay(key, 0.05) for _ in range(20)]
    for result in results:
        result.get(timeout=40)
    return stage.journal.runs(key)


def test_twenty_mutex_jobs_all_run_and_never_two_at_once(outcome: Outcome) -> None:
    runs = outcome(twenty_for_a_mutex)
    assert len({run.id for run in runs}) == len(runs) == 20
    assert _most_at_once(runs) == 1


@stories.tell
def one_waits_one_runs(stage: Stage) -> dict[str, Any]:
    """Calls before and during a run of until_and_while_executing."""
    key = new_key()
    first = tasks.one_and_one.delay(key, 3.0)
    before = tasks.one_and_one.delay(key, 0.2)
    wait_for(lambda: stage.runs(key), 10, every=0.05)
    during = [tasks.one_and_one.delay(key, 0.2) for _ in range(5)]
    first.get(timeout=10)
    during[0].get(timeout=10)
    time.sleep(0.5)
    return {"first": first, "before": before, "during": during, "runs": stage.journal.runs(key)}


def test_calls_during_a_run_get_exactly_one_follow_up(outcome: Outcome) -> None:
    seen = outcome(one_waits_one_runs)
    accepted, *others = seen["during"]
    assert not accepted.duplicate
    assert {(each.duplicate, each.id) for each in others} == {(True, accepted.id)}
    assert [run.id for run in seen["runs"]] == [seen["first"].id, accepted.id]
    assert _most_at_once(seen["runs"]) == 1


@stories.tell
def free_from_the_start(stage: Stage) -> dict[str, Any]:
    """Calls before and during a run of until_executing."""
    key = new_key()
    queue_wait = tasks.until_start.apply_async((key, 3.0), countdown=2)
    refused = tasks.until_start.delay(key)
    wait_for(lambda: stage.runs(key), 10, every=0.05)
    beside = tasks.until_start.delay(key, 1.0)
    beside.get(timeout=10)
    queue_wait.get(timeout=10)
    return {"refused": refused.duplicate, "beside": beside.duplicate, "runs": stage.journal.runs(key)}


def test_until_executing_is_free_as_soon_as_the_body_starts(outcome: Outcome) -> None:
    seen = outcome(free_from_the_start)
    assert (seen["refused"], seen["beside"]) == (True, False)
    assert _most_at_once(seen["runs"]) == 2, "it says nothing about running beside each other"


def _kept(stage: Stage, task: Any, how: str) -> tuple[float, float]:
    """Give the seconds until the next call is accepted: from the first call on, and from its run's end on."""
    key = new_key()
    begun = time.monotonic()
    first = task.delay(key, how)
    first.get(timeout=10, propagate=False)
    again = call_until_accepted(lambda: task.delay(key))
    accepted = time.monotonic()
    again.get(timeout=10)
    run, _ = stage.journal.runs(key)
    assert run.ended is not None
    return accepted - begun, accepted - run.ended


@stories.tell
def kept_after_success(stage: Stage) -> tuple[float, float]:
    """until_expired, a good end."""
    return _kept(stage, tasks.once_in_three, "succeed")


@stories.tell
def freed_by_a_failure(stage: Stage) -> tuple[float, float]:
    """until_expired, a failure."""
    return _kept(stage, tasks.once_in_three, "fail")


@stories.tell
def kept_after_a_failure(stage: Stage) -> tuple[float, float]:
    """until_expired with keep_on_failure, a failure."""
    return _kept(stage, tasks.once_in_three_whatever_comes, "fail")


def test_until_expired_is_kept_until_its_ttl(outcome: Outcome) -> None:
    assert outcome(kept_after_success)[0] > 2.9


def test_until_expired_is_freed_by_a_failure_at_once(outcome: Outcome) -> None:
    assert outcome(freed_by_a_failure)[1] < 2.5


def test_keep_on_failure_keeps_it_until_its_ttl(outcome: Outcome) -> None:
    assert outcome(kept_after_a_failure)[0] > 2.9


@stories.tell
def two_run_at_a_time(stage: Stage) -> list[Run]:
    """A mutex with limit 2, eight jobs."""
    key = new_key()
    results = [tasks.two_at_a_time.delay(key, 0.3) for _ in range(8)]
    for result in results:
        result.get(timeout=30)
    return stage.journal.runs(key)


def test_a_mutex_with_limit_two_lets_two_run_at_a_time(outcome: Outcome) -> None:
    runs = outcome(two_run_at_a_time)
    assert len(runs) == 8
    assert _most_at_once(runs) == 2


@stories.tell
def two_are_in_flight(stage: Stage) -> dict[str, Any]:
    """until_executed with limit 2: a third is refused while two run, accepted when one has ended."""
    key = new_key()
    first, second = tasks.two_in_flight.delay(key, 1.0), tasks.two_in_flight.delay(key, 2.5)
    third = tasks.two_in_flight.delay(key)
    first.get(timeout=10)
    fourth = call_until_accepted(lambda: tasks.two_in_flight.delay(key), timeout=1.0)
    second.get(timeout=10)
    fourth.get(timeout=10)
    return {"first": first, "third": third, "runs": stage.journal.runs(key)}


def test_with_limit_two_a_third_is_refused_with_the_id_of_the_oldest(outcome: Outcome) -> None:
    seen = outcome(two_are_in_flight)
    assert seen["third"].duplicate
    assert seen["third"].id == seen["first"].id
    assert len(seen["runs"]) == 3
    assert _most_at_once(seen["runs"]) == 2
