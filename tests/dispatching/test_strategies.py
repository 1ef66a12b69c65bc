"""What a refused call becomes, and who hears of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import chain

from django_jobdedup import DuplicateDispatch, Reschedule
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.beat import WITHOUT_TASKS, Beat
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import jobs
from .looking import ids, messages

NODE = {"concurrency": 4}
NAME = "tests.jobs.tasks.until_executed"


def test_skip_says_nothing_and_publishes_nothing(
    world: Environment, redis_client: redis.Redis, log: pytest.LogCaptureFixture, key: str
) -> None:
    first, second = (jobs.noticing.apply_async((key,), queue=key) for _ in range(2))
    assert second.id == first.id
    assert ids(redis_client, world.namespace, key) == [first.id]
    assert log.records == []


def test_log_names_the_task_the_holder_and_its_state(
    world: Environment, redis_client: redis.Redis, log: pytest.LogCaptureFixture, key: str
) -> None:
    first = jobs.noticing.apply_async((key,), queue=key)
    second = jobs.noticing.apply_async((key,), queue=key, unique={"on_conflict": "log"})
    assert (second.outcome, second.id) == ("suppressed", first.id)
    assert ids(redis_client, world.namespace, key) == [first.id]
    (record,) = log.records
    assert record.levelname == "WARNING"
    said = record.getMessage()
    assert said.startswith(f"tests.dispatching.jobs.noticing was not queued: job {first.id} holds lock ")
    assert first.fingerprint[:12] in said
    assert said.endswith(("(being queued)", "(waiting)"))
    assert record.action == "suppressed"


def test_raise_gives_a_caller_the_holders_id(
    world: Environment, redis_client: redis.Redis, log: pytest.LogCaptureFixture, key: str
) -> None:
    options: dict[str, Any] = {"queue": key, "unique": {"on_conflict": "raise"}}
    first = jobs.noticing.apply_async((key,), **options)
    with pytest.raises(DuplicateDispatch, match=first.id) as caught:
        jobs.noticing.apply_async((key,), **options)
    assert caught.value.holder_id == first.id
    assert caught.value.fingerprint == first.fingerprint
    assert ids(redis_client, world.namespace, key) == [first.id]
    assert log.records == []


@pytest.mark.worker
def test_raise_within_a_body_is_an_error_like_any_other(node: Worker, diary: Journal, key: str) -> None:
    """A body may catch it; one that does not fails."""
    caught = jobs.asking.delay(key, NAME, options={"countdown": 1.0, "unique": {"on_conflict": "raise"}})
    first, second = caught.get(timeout=10)
    assert first[0] == "accepted"
    assert second == ["DuplicateDispatch", True, first[2]]
    failing = jobs.letting_through.delay(f"{key}-2", NAME)
    with pytest.raises(DuplicateDispatch) as error:
        failing.get(timeout=10)
    assert error.value.holder_id
    diary.wait_for_ends(1, f"{key}-2")


@pytest.mark.worker
@pytest.mark.parametrize("app_name", ["testproject", WITHOUT_TASKS], ids=["registered", "not registered"])
def test_raise_never_harms_beat(
    world: Environment, node: Worker, diary: Journal, key: str, tmp_path: Path, app_name: str
) -> None:
    """Case U10: beat is alive after ten conflicts, each of them a refusal in its log."""
    entry = {"task": NAME, "schedule": 0.2, "kwargs": {"key": key, "seconds": 3}}
    told = {"JOBDEDUP_TASKS": {NAME: {"unique": {"key": "key", "on_conflict": "raise"}}}}
    with Beat(world.having(settings=told), tmp_path, {"tick": entry}, app=app_name) as beat:
        beat.wait_until_ready()
        wait_for(lambda: beat.log.count("was not queued: job") >= 10, 10, what=lambda: beat.log)
        assert beat.running
        assert "Traceback" not in beat.log
        assert "ERROR" not in beat.log
    assert len(diary.runs(key)) == 1


@pytest.mark.worker
def test_raise_in_a_callback_is_a_logged_refusal_and_the_parent_succeeds(
    node: Worker, diary: Journal, key: str
) -> None:
    holder = tasks.until_executed.delay(key, 2)
    parent = tasks.plain.apply_async(
        (f"{key}-parent",), link=tasks.until_executed.si(key).set(unique={"on_conflict": "raise"})
    )
    assert parent.get(timeout=10) == f"{key}-parent"
    node.wait_for_log(f"was not queued: job {holder.id}")
    assert parent.state == "SUCCESS"
    assert holder.get(timeout=10) == key
    assert [run.id for run in diary.runs(key)] == [holder.id]


@pytest.mark.worker
def test_raise_in_a_chain_step_does_not_stop_the_chain(node: Worker, diary: Journal, key: str) -> None:
    """Somebody waits for the id of a chain step, so it is published; it follows the holder."""
    holder = tasks.until_executed.delay(key, 1)
    last = chain(
        tasks.plain.si(f"{key}-first"),
        tasks.until_executed.si(key).set(unique={"on_conflict": "raise"}),
        jobs.noticing.si(f"{key}-last"),
    ).apply_async()
    assert last.get(timeout=20) == f"{key}-last"
    assert last.parent.parent.state == "SUCCESS"
    assert [run.id for run in diary.runs(key)] == [holder.id]


@pytest.mark.parametrize("error", ["no form", "no such option"])
@pytest.mark.worker
def test_a_call_that_is_wrong_never_fails_the_parent_whose_callback_it_is(
    node: Worker, diary: Journal, key: str, error: str
) -> None:
    """In a view it is an error before anything is locked; here it would fail a job that already ran."""
    wrong = (
        jobs.variadic.si("not", {"a": "form"}, key=key).set(unique={"key": ["nonsense"]})
        if error == "no form"
        else jobs.variadic.si(key).set(unique={"nonsense": 1})
    )
    with pytest.raises((TypeError, ValueError), match="nonsense"):
        wrong.clone().apply_async()
    parent = tasks.plain.apply_async((key,), link=wrong)
    assert parent.get(timeout=10) == key
    wait_for(lambda: [run for run in diary.runs() if run.key.startswith("variadic") and key in run.key], 10)
    assert parent.state == "SUCCESS"
    assert re.search(rf"ERROR.*{jobs.variadic.name} goes without a lock: .*nonsense", node.log)
    assert "internal error in" not in node.log


@pytest.mark.worker
def test_reschedule_publishes_later_under_its_own_id(node: Worker, diary: Journal, key: str) -> None:
    first = tasks.until_executed.delay(key, 0.5)
    second = tasks.until_executed.apply_async((key,), unique={"on_conflict": Reschedule(after=1)})
    assert (second.outcome, second.duplicate) == ("rescheduled", False)
    assert second.get(timeout=20) == key
    assert [run.id for run in diary.runs(key)] == [first.id, second.id]
    assert diary.overlaps(key) == []
    begun, later = diary.runs(key)
    assert later.started - begun.started >= 0.7


@pytest.mark.worker
def test_a_rescheduled_job_waits_for_a_holder_that_still_runs(node: Worker, diary: Journal, key: str) -> None:
    first = tasks.until_executed.delay(key, 2)
    second = tasks.until_executed.apply_async((key,), unique={"on_conflict": Reschedule(after=0.5)})
    assert second.get(timeout=20) == key
    assert [run.id for run in diary.runs(key)] == [first.id, second.id]
    assert diary.overlaps(key) == []


def test_reschedule_keeps_an_eta_that_is_later(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    jobs.noticing.apply_async((key,), queue=key)
    options: dict[str, Any] = {"queue": key, "unique": {"on_conflict": Reschedule(after=10)}}
    late = jobs.noticing.apply_async((key,), countdown=500, **options)
    soon = jobs.noticing.apply_async((key,), countdown=1, **options)
    etas = {
        message["headers"]["id"]: message["headers"]["eta"]
        for message in messages(redis_client, world.namespace, key)
    }
    assert late.outcome == soon.outcome == "rescheduled"
    now = app.now().isoformat()
    assert now < etas[soon.id] < etas[late.id]
