"""What a dispatch says, and that no receiver can break one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from django_jobdedup import DuplicateDispatch, Outcome, Reschedule, signals
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment

from .looking import ids

NAME = "tests.jobs.tasks.until_executed"
Heard = dict[str, list[dict[str, Any]]]


def test_each_outcome_is_announced_with_its_call(celery_env: Environment, heard: Heard, key: str) -> None:
    results = [
        tasks.until_executed.delay(key, seconds=1.5),
        tasks.until_executed.delay(key),
        tasks.until_executed.apply_async((key,), unique={"on_conflict": Reschedule(after=60)}),
        tasks.until_executed.apply_async((key,), unique=False),
    ]
    said = heard["dispatch_decided"]
    assert [each["outcome"] for each in said] == ["accepted", "suppressed", "rescheduled", "bypassed"]
    assert [each["holder_id"] for each in said] == [result.id for result in results]
    assert [each["fingerprint"] for each in said] == [result.fingerprint for result in results]
    assert [each["error"] for each in said] == [None] * 4
    assert {each["sender"] for each in said} == {type(tasks.until_executed._get_current_object())}
    call = said[0]["call"]
    assert (call.task, call.args, call.kwargs) == (NAME, (key,), {"seconds": 1.5})
    assert call.id == results[0].id
    assert call.options["headers"]["jobdedup"]["id"] == results[0].id
    with pytest.raises(AttributeError):
        call.task = "another"


def test_a_refusal_that_raises_is_announced_with_its_error(
    celery_env: Environment, heard: Heard, key: str
) -> None:
    first = tasks.until_executed.delay(key)
    with pytest.raises(DuplicateDispatch) as caught:
        tasks.until_executed.apply_async((key,), unique={"on_conflict": "raise"})
    said = heard["dispatch_decided"][1]
    assert (said["outcome"], said["holder_id"], said["error"]) == ("suppressed", first.id, caught.value)


def test_a_task_that_this_process_does_not_know_has_no_sender(celery_env: Environment, heard: Heard) -> None:
    app.send_task("elsewhere.job", ("a",), unique={"key": []})
    ((sender, outcome),) = [(each["sender"], each["outcome"]) for each in heard["dispatch_decided"]]
    assert sender is None
    assert outcome in (Outcome.ACCEPTED, Outcome.UNKNOWN)


def test_a_task_without_a_policy_says_nothing(celery_env: Environment, heard: Heard, key: str) -> None:
    tasks.plain.delay(key)
    assert not any(heard.values())


@pytest.fixture
def broken() -> Iterator[list[str]]:
    """A receiver that raises, whatever it hears."""
    asked = []

    def receive(sender: object, outcome: str, **_: object) -> None:
        asked.append(outcome)
        raise RuntimeError("a receiver broke")

    signals.dispatch_decided.connect(receive)
    yield asked
    signals.dispatch_decided.disconnect(receive)


def test_a_receiver_that_raises_breaks_no_dispatch(
    celery_env: Environment,
    redis_client: redis.Redis,
    broken: list[str],
    log: pytest.LogCaptureFixture,
    key: str,
) -> None:
    results = [tasks.until_executed.delay(key) for _ in range(2)]
    assert [result.outcome for result in results] == broken == ["accepted", "suppressed"]
    assert ids(redis_client, celery_env.namespace) == [results[0].id]
    errors = [record for record in log.records if record.levelname == "ERROR"]
    assert [record.name for record in errors] == ["django.dispatch"] * 2
    assert errors[0].exc_info is not None
