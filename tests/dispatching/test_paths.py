"""Every way on which Celery publishes obeys the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from django.db import transaction

from testproject.celery import app
from tests.jobs import tasks
from tests.rig.beat import WITHOUT_TASKS, Beat
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from .looking import ids
from .process import run_python

pytestmark = pytest.mark.worker

NODE = {"concurrency": 4}
NAME = "tests.jobs.tasks.until_executed"
LONG = 0.6

PATHS: dict[str, Callable[[str], Any]] = {
    "delay": lambda key: tasks.until_executed.delay(key, LONG),
    "apply_async": lambda key: tasks.until_executed.apply_async((key,), {"seconds": LONG}),
    "send_task": lambda key: app.send_task(NAME, [key, LONG]),
    "send_task, kwargs": lambda key: app.send_task(NAME, kwargs={"seconds": LONG, "key": key}),
    "signature": lambda key: tasks.until_executed.s(key, LONG).delay(),
    "signature by name": lambda key: app.signature(NAME, args=(key, LONG)).apply_async(),
    "immutable signature, frozen late": lambda key: tasks.until_executed.si(key, LONG).apply_async(),
}


@contextmanager
def asleep(node: Worker) -> Iterator[None]:
    """A worker that takes no message for now: however long the senders need, the job waits."""
    node.pause()
    try:
        yield
    finally:
        node.resume()


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_second_call_is_refused_and_one_after_the_end_runs(
    path: Callable[[str], Any], node: Worker, diary: Journal, key: str
) -> None:
    with asleep(node):
        first, second = path(key), path(key)
    assert (first.outcome, first.duplicate) == ("accepted", False)
    assert (second.outcome, second.duplicate, second.id) == ("suppressed", True, first.id)
    assert second.fingerprint == first.fingerprint
    assert first.get(timeout=10) == key
    third = path(key)
    assert third.outcome == "accepted"
    assert third.get(timeout=10) == key
    assert [run.id for run in diary.runs(key)] == [first.id, third.id]


def test_all_paths_mean_one_job(node: Worker, diary: Journal, key: str) -> None:
    with asleep(node):
        results = [path(key) for path in PATHS.values()]
    assert len({result.id for result in results}) == 1
    assert len({result.fingerprint for result in results}) == 1
    assert results[0].get(timeout=10) == key
    assert len(diary.runs(key)) == 1


@pytest.mark.parametrize("known", ["the sender's settings name the policy", "only the task has a policy"])
def test_a_sender_without_the_task_is_told_apart_by_the_worker(
    world: Environment, node: Worker, diary: Journal, key: str, known: str
) -> None:
    """The worker knows the signature, so it fingerprints at reception; the refused copy ends as success."""
    told = {"JOBDEDUP_TASKS": {NAME: {"unique": True}}} if "settings" in known else {}
    with asleep(node):
        (answers,) = run_python(
            world.having(settings=told),
            f"""
            from tests.jobs.bare import app
            assert {NAME!r} not in app.tasks
            ids = [app.send_task({NAME!r}, [{key!r}, {LONG}]).id for _ in range(2)]
            tell(ids)
            """,
        )
    first, second = (app.AsyncResult(task_id) for task_id in answers)
    assert first.get(timeout=10) == key
    assert second.get(timeout=10) == {"suppressed_by": first.id}
    assert [run.id for run in diary.runs(key)] == [first.id]


def test_a_sender_without_the_task_refuses_itself_where_the_key_is_given_by_keyword(
    world: Environment, node: Worker, diary: Journal, key: str
) -> None:
    told = {"JOBDEDUP_TASKS": {NAME: {"unique": {"key": "key"}}}}
    with asleep(node):  # the first job must not end before the last question
        ((first, second),) = run_python(
            world.having(settings=told),
            f"""
            from tests.jobs.bare import app
            tell([seen(app.send_task({NAME!r}, kwargs={{"key": {key!r}, "seconds": 0}})) for _ in range(2)])
            """,
        )
        assert first[:2] == ["accepted", False]
        assert second[:3] == ["suppressed", True, first[2]]
        equal = tasks.until_executed.delay(key)
        assert (equal.outcome, equal.fingerprint) == ("suppressed", first[3]), (
            "one fingerprint, task known or not"
        )
    assert app.AsyncResult(first[2]).get(timeout=10) == key
    assert len(diary.runs(key)) == 1


@pytest.mark.parametrize("app_name", ["testproject", WITHOUT_TASKS], ids=["registered", "not registered"])
def test_beat_obeys_the_policy(
    world: Environment, node: Worker, diary: Journal, key: str, app_name: str, tmp_path: Any
) -> None:
    """Ticks three times as fast as the job: never two at once, and the next tick after an end starts one."""
    schedule = {"tick": {"task": NAME, "schedule": 0.2, "args": [key, LONG]}}
    with Beat(world, tmp_path, schedule, app=app_name) as beat:
        beat.wait_until_ready()
        runs = diary.wait_for_ends(2, key, timeout=20)
        assert beat.running
        sent = beat.log.count("Sending due task")
    assert diary.overlaps(key) == []
    assert sent >= 6
    assert len(runs) <= sent / 2
    assert "Traceback" not in beat.log


@pytest.mark.parametrize(
    ("task", "arguments"),
    [(tasks.retrying, (2, 0.5)), (tasks.autoretrying, (2,))],
    ids=["retry", "autoretry"],
)
def test_a_retry_passes_and_an_outsider_does_not(
    task: Any, arguments: tuple[Any, ...], node: Worker, diary: Journal, key: str
) -> None:
    first = task.delay(key, *arguments)
    outsider = task.delay(key, *arguments)
    assert (outsider.outcome, outsider.id) == ("suppressed", first.id)
    if task is tasks.retrying:
        diary.wait_for_ends(1, key)
        during_the_pause = task.delay(key, *arguments)
        assert (during_the_pause.outcome, during_the_pause.id) == ("suppressed", first.id)
    assert first.get(timeout=15) == 2
    assert [(run.id, run.retries) for run in diary.runs(key)] == [(first.id, n) for n in range(3)]
    after = task.delay(key, 0)
    assert after.outcome == "accepted"
    assert after.get(timeout=10) == 0


def test_calls_within_a_body_obey_the_policy(node: Worker, diary: Journal, key: str) -> None:
    from . import jobs

    asked = jobs.asking.delay(key, NAME, 3, options={"countdown": 1.0})
    first, *others = asked.get(timeout=10)
    assert first[:2] == ["accepted", False]
    assert others == [["suppressed", True, first[2]]] * 2
    assert app.AsyncResult(first[2]).get(timeout=10) == key
    assert len(diary.runs(key)) == 1


def test_a_body_that_calls_itself_is_refused_while_it_runs(node: Worker, diary: Journal, key: str) -> None:
    first = tasks.recursive.delay(key)
    assert first.get(timeout=10) == first.id
    assert len(diary.runs(key)) == 1


@pytest.mark.django_db(transaction=True)
def test_delay_on_commit_asks_at_the_commit(
    world: Environment, redis_client: redis.Redis, node: Worker, diary: Journal, key: str
) -> None:
    with asleep(node):
        with transaction.atomic():
            tasks.until_executed.delay_on_commit(key, LONG)
            tasks.until_executed.delay_on_commit(key, LONG)
            assert ids(redis_client, world.namespace) == []
        refused = tasks.until_executed.delay(key)
    assert refused.outcome == "suppressed"
    assert refused.get(timeout=10) == key
    assert [run.id for run in diary.runs(key)] == [refused.id]


@pytest.mark.django_db(transaction=True)
def test_delay_on_commit_leaves_no_lock_after_a_rollback(node: Worker, diary: Journal, key: str) -> None:
    with transaction.atomic():
        tasks.until_executed.delay_on_commit(key, LONG)
        transaction.set_rollback(True)
    accepted = tasks.until_executed.delay(key)
    assert accepted.outcome == "accepted"
    assert accepted.get(timeout=10) == key


def test_no_lock_is_left_when_all_is_done(world: Environment, node: Worker, diary: Journal) -> None:
    from django_jobdedup.stores.handler import stores

    wait_for(
        lambda: not any(stores["default"].list_locks(shard) for shard in range(16)),
        15,
        what=lambda: f"no locks: {[stores['default'].list_locks(shard) for shard in range(16)]}",
    )
