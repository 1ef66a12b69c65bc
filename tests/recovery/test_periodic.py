"""The periodic task: sent by beat, done by a worker, alone with nothing but itself."""

from __future__ import annotations

import time

import pytest
from celery.result import AsyncResult

from django_jobdedup.exceptions import JobLost
from django_jobdedup.recovery import maintain, periodic
from django_jobdedup.recovery.duty import Duty, Stop, Tally
from django_jobdedup.recovery.maintain import NAMES, Maintenance
from django_jobdedup.recovery.periodic import EXPIRES, NAME
from django_jobdedup.stores.handler import stores
from testproject.celery import app
from tests.conftest import StartBeat, StartWorker
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for


def test_every_app_knows_the_task() -> None:
    assert app.tasks[NAME] == periodic.maintain
    assert periodic.maintain.ignore_result
    assert periodic.maintain.expires == EXPIRES


def test_in_one_process_each_duty_keeps_its_pace(celery_env: Environment) -> None:
    now = [0.0]
    maintenance = Maintenance(clock=lambda: now[0])

    def done() -> list[str]:
        return [each.duty for each in maintenance.run()]

    assert done() == list(NAMES)
    assert (done(), maintenance.idle()) == ([], 1.0)
    now[0] = 1.0
    assert done() == ["relay"]
    now[0] = 15.0
    assert done() == ["relay", "reap", "history"]
    now[0] = 600.0
    assert done() == list(NAMES)


def test_what_is_told_to_stop_leaves_the_other_duties_to_the_next_run() -> None:
    maintenance = Maintenance([Duty(name, 60.0, lambda stop: Tally(asked=1)) for name in "abc"])
    asked = iter([False, True])

    assert [each.duty for each in maintenance.run(lambda: next(asked))] == ["a"]
    assert [each.duty for each in maintenance.run()] == ["b", "c"]


def test_a_duty_that_fails_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    def fail(stop: Stop) -> Tally:
        raise LookupError("a mistake")

    maintenance = Maintenance([Duty("a", 60.0, fail), Duty("b", 60.0, lambda stop: Tally(asked=1))])
    failed, done = maintenance.run()
    assert (failed.well, failed.as_json()) == (False, {"duty": "a", "error": "LookupError: a mistake"})
    assert (done.well, done.as_json()) == (True, {"duty": "b", "asked": 1})
    assert "internal error in maintain.a" in caplog.text
    assert maintenance.run() == [], "it waits for its next turn like the others"


def test_one_run_leaves_what_takes_too_long_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shall not keep a slot of its worker."""

    def work(stop: Stop) -> Tally:
        steps = next(step for step in range(10_000) if stop() or time.sleep(0.001))
        return Tally(steps=steps)

    assert periodic.BUDGET == 10.0
    monkeypatch.setattr(periodic, "BUDGET", 0.1)
    monkeypatch.setattr(maintain, "maintenance", Maintenance([Duty("long", 60.0, work)]))
    (done,) = periodic.maintain()
    assert done["duty"] == "long"
    assert 0 < done["steps"] < 1000


@pytest.mark.worker
@pytest.mark.environment(
    settings={
        "JOBDEDUP_TASKS": {"*": {"unique": True}, "tests.jobs.*": {"unique": {"key": "key", "lease": 3}}}
    }
)
def test_a_worker_does_it_and_whoever_waits_for_a_killed_run_is_told(
    celery_env: Environment, worker: StartWorker, beat: StartBeat, journal: Journal
) -> None:
    """Also under a glob that gives every task a policy: the upkeep has none."""
    doomed = worker(queues=["doomed"])
    result = tasks.plain.apply_async(("k", 60.0), queue="doomed")
    journal.wait_for_runs(1, "k")
    upkeep = worker(queues=["celery"])
    beat({"upkeep": {"task": NAME, "schedule": 0.5}})
    doomed.kill()

    waits = AsyncResult(result.id, app=app)
    with pytest.raises(JobLost):
        waits.get(timeout=30)
    assert f"job {result.id} of lock tests.jobs.tasks.plain was lost" in upkeep.log
    wait_for(lambda: upkeep.log.count(f"Task {NAME}") > 3, 10, what="more runs of the task")
    locks = [stores["default"].list_locks(shard) for shard in range(stores["default"].shards)]
    assert [record for found in locks for record in found] == []  # type: ignore[union-attr]


@pytest.mark.worker
def test_several_at_once_do_no_harm(celery_env: Environment, worker: StartWorker, journal: Journal) -> None:
    busy = worker(concurrency=4)
    for _ in range(40):
        periodic.maintain.apply_async()
    calls = [tasks.until_executed.delay(f"k{number}", 0.1) for number in range(20)]

    journal.wait_for_ends(20)
    assert len({call.id for call in calls}) == 20
    assert len(journal.runs()) == 20
    assert "Traceback" not in busy.log
