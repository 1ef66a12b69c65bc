"""The strategy reject at a dispatch: the call is a row in the list of dead jobs, wherever its lock lives."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from celery.result import AsyncResult
from django.db import DatabaseError, connection, transaction
from django.test import override_settings

from django_jobdedup import DuplicateDispatch, dead
from django_jobdedup.dead import dead_jobs, delete, requeue
from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.middleware import burying
from django_jobdedup.models import JobIntent
from tests.jobs import tasks
from tests.rig.environment import Environment

from .looking import ids

TASK = tasks.until_executed
REJECTING = {"JOBDEDUP_TASKS": {TASK.name: {"unique": {"on_conflict": "reject"}}}}

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def rejecting(world: Environment) -> Any:
    """Under this policy of today."""
    with override_settings(**REJECTING):
        yield


def call(key: str, value: Any = 0, **options: Any) -> Any:
    return TASK.apply_async((key, value), queue=key, **options)


def test_a_rejected_call_is_a_dead_row_with_the_whole_call(
    world: Environment, redis_client: redis.Redis, log: pytest.LogCaptureFixture, key: str
) -> None:
    first, second = call(key, 1), call(key, 2, priority=6, headers={"trace": "x"})
    assert (second.outcome, second.duplicate, second.id) == ("suppressed", True, first.id)
    assert ids(redis_client, world.namespace, key) == [first.id]
    (row,) = dead_jobs()
    assert (row.fingerprint, row.name, row.state) == (first.fingerprint, TASK.name, "dead")
    assert row.reason == f"rejected: job {first.id} holds its lock"
    assert row.token not in ("", first.id)
    (record,) = [record for record in log.records if record.levelname == "ERROR"]
    assert (record.action, record.task_id) == ("dead", row.token)


def test_every_rejected_call_is_a_row_of_its_own_the_newest_first(world: Environment, key: str) -> None:
    for value in range(4):
        call(key, value)
    rows = list(dead_jobs())
    assert len(rows) == 3
    assert [row.pk for row in rows] == sorted((row.pk for row in rows), reverse=True)


def test_a_call_that_would_be_rejected_again_stays_dead(world: Environment, key: str) -> None:
    first = call(key, 1)
    call(key, 2)
    (row,) = dead_jobs()
    with pytest.raises(DuplicateDispatch) as caught:
        requeue(row.pk)
    assert caught.value.holder_id == first.id
    assert [each.pk for each in dead_jobs()] == [row.pk]


@pytest.fixture
def row(world: Environment, key: str) -> JobIntent:
    """The dead job of a call that was rejected."""
    call(key, 1)
    call(key, 2)
    return dead_jobs().get()


def test_of_two_who_send_it_again_at_one_time_one_does(
    row: JobIntent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sending(*_: Any) -> Any:
        with pytest.raises(LookupError, match=f"Dead job {row.pk} is being sent again by somebody else"):
            requeue(row.pk)
        return AsyncResult("new-id")

    monkeypatch.setattr(dead, "_send", sending)
    assert requeue(row.pk).id == "new-id"
    assert not dead_jobs().exists()


def test_who_could_not_send_it_leaves_it_to_the_next(row: JobIntent, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise OSError("no broker")

    monkeypatch.setattr(dead, "_send", failing)
    for _ in range(2):
        with pytest.raises(OSError, match="no broker"):
            requeue(row.pk)


def test_who_fails_too_late_leaves_it_to_whoever_has_it_by_then(
    row: JobIntent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        dead_jobs().update(lease=2**50)  # a minute has passed, and another sends it
        raise OSError("no broker")

    monkeypatch.setattr(dead, "_send", failing)
    with pytest.raises(OSError, match="no broker"):
        requeue(row.pk)
    with pytest.raises(LookupError, match="by somebody else"):
        requeue(row.pk)


def test_an_error_that_breaks_the_transaction_is_told_as_it_is(
    row: JobIntent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        transaction.set_rollback(True)
        raise DatabaseError("serialization failure")

    monkeypatch.setattr(dead, "_send", failing)
    with pytest.raises(DatabaseError, match="serialization failure"), transaction.atomic():
        requeue(row.pk)
    assert not dead_jobs().get(pk=row.pk).lease


def test_a_call_that_somebody_waits_for_is_never_rejected(world: Environment, key: str) -> None:
    call(key, 1)
    assert call(key, 2, task_id=f"given-{key}").outcome == "followed"
    assert not dead_jobs().exists()


def test_a_call_that_cannot_be_stored_can_be_seen_and_not_sent_again(world: Environment, key: str) -> None:
    call(key, 1)
    call(key, 2, declare=[object()])
    (row,) = dead_jobs()
    assert row.call is None
    assert "its option declare= cannot be stored" in row.reason
    with pytest.raises(StoredCallError, match=rf"Dead job {row.pk} of {TASK.name} has no stored call"):
        requeue(row.pk)
    assert delete(row.pk)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row cannot be written."""

    def fail(*args: Any, **options: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM no_such_table")

    monkeypatch.setattr(burying, "_write", fail)


@pytest.mark.usefixtures("broken")
def test_without_a_row_the_caller_gets_the_error(world: Environment, key: str) -> None:
    """Else nobody would ever see the call."""
    call(key, 1)
    with pytest.raises(DatabaseError), transaction.atomic():
        call(key, 2)


@pytest.mark.usefixtures("broken")
def test_without_a_row_beat_goes_on_and_the_log_says_so(
    world: Environment, log: pytest.LogCaptureFixture, key: str
) -> None:
    first = call(key, 1)
    with transaction.atomic():
        second = call(key, 2, headers={"celery_beat_task": True})
        transaction.set_rollback(True)
    assert (second.outcome, second.id) == ("suppressed", first.id)
    assert "internal error in burying" in log.text
