"""What a caller holds after a dispatch."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from celery.result import AsyncResult

from django_jobdedup import Outcome, Reschedule, outcome_of
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import jobs
from .looking import messages, state

NAME = "tests.jobs.tasks.until_executed"


def seen(result: Any) -> tuple[Any, ...]:
    """Give what a caller looks at."""
    assert outcome_of(result) is result.outcome
    assert isinstance(result, AsyncResult)
    return str(result.outcome), result.duplicate


@pytest.mark.worker
def test_a_suppressed_caller_gets_the_value_of_the_job_that_covers_it(
    node: Worker, diary: Journal, key: str
) -> None:
    first, second = (tasks.until_executed.delay(key, 0.5) for _ in range(2))
    assert seen(first) == ("accepted", False)
    assert seen(second) == ("suppressed", True)
    assert second.id == first.id
    assert len(first.fingerprint) == 64
    assert second.fingerprint == first.fingerprint
    assert second.get(timeout=10) == key
    assert second.state == "SUCCESS"
    assert len(diary.runs(key)) == 1


@pytest.mark.worker
def test_a_suppressed_caller_gets_the_error_of_the_job_that_covers_it(node: Worker, key: str) -> None:
    first, second = (jobs.adding.apply_async((key, 1, 2, True), countdown=1) for _ in range(2))
    assert second.id == first.id
    with pytest.raises(tasks.JobError):
        second.get(timeout=10)


def test_a_rescheduled_caller_holds_its_own_id(world: Environment, key: str) -> None:
    first = tasks.until_executed.apply_async((key,), countdown=5)
    second = tasks.until_executed.apply_async((key,), unique={"on_conflict": Reschedule(after=60)})
    assert seen(second) == ("rescheduled", False)
    assert second.id != first.id
    assert second.fingerprint == first.fingerprint


def test_a_bypassed_call_has_no_fingerprint(world: Environment, key: str) -> None:
    first = tasks.until_executed.delay(key)
    second = tasks.until_executed.apply_async((key,), unique=False)
    assert seen(second) == ("bypassed", False)
    assert second.fingerprint == ""
    assert second.id != first.id


def test_nothing_is_known_of_a_restored_result_and_of_a_task_without_a_policy(
    world: Environment, key: str
) -> None:
    accepted = tasks.until_executed.delay(key)
    assert outcome_of(accepted) is Outcome.ACCEPTED
    assert outcome_of(app.AsyncResult(accepted.id)) is Outcome.UNKNOWN
    assert outcome_of(tasks.plain.delay(key)) is Outcome.UNKNOWN
    assert outcome_of(None) is Outcome.UNKNOWN


def test_the_outcome_is_a_text_and_a_member(world: Environment, key: str) -> None:
    result = tasks.until_executed.delay(key)
    assert result.outcome == "accepted"
    assert result.outcome is Outcome.ACCEPTED


class OwnResult(AsyncResult):
    """A result class of the project's own."""


def test_a_result_class_of_the_callers_own_is_used_for_every_outcome(world: Environment, key: str) -> None:
    results = [
        app.send_task(NAME, (key,), result_cls=OwnResult, countdown=5),
        app.send_task(NAME, (key,), result_cls=OwnResult),
        app.send_task(NAME, (key,), result_cls=OwnResult, unique=False),
    ]
    assert [type(result) for result in results] == [OwnResult] * 3
    assert [result.outcome for result in results] == ["accepted", "suppressed", "bypassed"]


@pytest.mark.worker
def test_a_base_class_of_the_projects_own_brings_its_policy(node: Worker, diary: Journal, key: str) -> None:
    first, second = (jobs.based.delay(key, 0.5) for _ in range(2))
    assert [first.outcome, second.outcome] == ["accepted", "suppressed"]
    assert second.get(timeout=10) == f"based {key}"
    assert len(diary.runs(key)) == 1


@pytest.mark.worker
def test_a_suppressed_caller_of_a_task_without_results_does_not_wait(
    node: Worker, diary: Journal, key: str
) -> None:
    """Celery marks such a result as ignored, and ``get()`` returns at once."""
    first, second = (jobs.forgetful.delay(key, 0.5) for _ in range(2))
    assert [first.outcome, second.outcome] == ["accepted", "suppressed"]
    assert first.ignored
    assert second.ignored
    assert first.get(timeout=1) is None
    assert second.get(timeout=1) is None
    diary.wait_for_ends(1, key)
    assert len(diary.runs(key)) == 1
    third = jobs.forgetful.delay(key)
    assert third.outcome == "accepted"


def test_one_call_may_ignore_its_result(world: Environment, key: str) -> None:
    tasks.until_executed.apply_async((key,), countdown=5)
    second = tasks.until_executed.apply_async((key,), ignore_result=True)
    assert second.outcome == "suppressed"
    assert second.get(timeout=1) is None


def test_the_accepted_id_is_the_one_in_the_message_and_in_the_store(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    result = jobs.noticing.apply_async((key,), queue=key)
    (message,) = messages(redis_client, world.namespace, key)
    assert message["headers"]["id"] == result.id
    assert message["properties"]["correlation_id"] == result.id
    assert state(result, jobs.noticing.name) == [(result.id, "W")]


def test_a_result_without_a_policy_has_the_same_attributes(world: Environment, key: str) -> None:
    """Code that looks at them works on when a policy is taken away."""
    result = tasks.plain.delay(key)
    assert (result.outcome, result.duplicate, result.fingerprint) == ("unknown", False, "")
