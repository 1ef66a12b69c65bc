"""What calls do with the job that waits, where the store keeps calls: at once, and after a commit."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from django_jobdedup import DuplicateDispatch
from django_jobdedup.dead import dead_jobs, delete, requeue
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.models import JobIntent
from django_jobdedup.stores.record import Ref
from tests.jobs import tasks

from .conftest import Base

TASK = tasks.until_executed


def call(key: str, value: Any = 0, how: Any = "rerun", **options: Any) -> Any:
    """Dispatch; ``value`` is no part of the key."""
    policy = {"lock": "until_executed", "key": "key", "on_conflict": how, **options.pop("unique", {})}
    return TASK.apply_async((key, value), unique=policy, **options)


def arguments(base: Base, task_id: str) -> Any:
    """Give the arguments in the message of a job."""
    return base.message(task_id)["arguments"]


def test_a_rerun_joins_the_job_that_waits(base: Base) -> None:
    first, second, third = (call("a", value) for value in (1, 2, 3))
    assert (first.outcome, second.outcome, third.outcome) == ("accepted", "rerun", "rerun")
    assert {first.id, second.id, third.id} == {first.id}
    assert base.sent() == [first.id]
    assert base.states() == ["published"], "a call that joined another leaves no row of its own"
    assert b'"a",3' in bytes(base.rows()[0].args or b"").replace(b", ", b",")


def test_reruns_of_one_transaction_are_one_job(base: Base) -> None:
    with base.atomic():
        first, second = call("a", 1), call("a", 2)
        assert (first.outcome, second.outcome) == ("deferred", "deferred")
    assert (first.outcome, second.outcome) == ("accepted", "rerun")
    assert base.sent() == [first.id]
    assert sorted(base.states()) == ["published", "superseded"]


def test_a_replaced_job_is_superseded(base: Base) -> None:
    first, second = (call("a", value, "replace") for value in (1, 2))
    confirmer.flush()
    assert (first.outcome, second.outcome) == ("accepted", "accepted")
    assert base.sent() == [first.id, second.id]
    assert base.states() == ["superseded", "published"]


@pytest.mark.parametrize("atomic", [False, True], ids=["at once", "after a commit"])
def test_a_rejected_call_is_one_dead_row_with_its_reason(base: Base, atomic: bool, settings: Any) -> None:
    settings.JOBDEDUP_TASKS = {TASK.name: {"unique": {"on_conflict": "reject"}}}
    first = TASK.delay("a", 1)
    with base.atomic() if atomic else nullcontext():
        second = TASK.delay("a", 2)
    assert (second.outcome, second.duplicate) == ("suppressed", True)
    (row,) = dead_jobs(base.using)
    assert row.reason == f"rejected: job {first.id} holds its lock"
    assert base.states() == ["published", "dead"]
    assert base.sent() == [first.id]
    with pytest.raises(DuplicateDispatch):
        requeue(row.pk, using=base.using)
    assert base.states() == ["published", "dead"]
    with base.atomic():
        requeue(row.pk, using=base.using)
    assert base.states() == ["published", "superseded", "dead"], "refused once more, after the commit"
    (row,) = dead_jobs(base.using)
    assert delete(row.pk, using=base.using)
    assert list(dead_jobs(base.using)) == []


def test_a_dead_call_is_sent_again_once_the_key_is_free(base: Base) -> None:
    first = call("a", 1, "reject")
    call("a", 2, "reject", headers={"trace": "x"})
    (row,) = dead_jobs(base.using)
    holder = base.rows()[0]
    base.store.resolve(_ref(holder), holder.token, "dead", reason="for the test")
    again = requeue(row.pk, using=base.using)
    assert again.outcome == "accepted"
    assert base.sent() == [first.id, again.id]
    assert arguments(base, again.id) == ["a", 2]
    assert base.message(again.id)["headers"]["trace"] == "x"
    row.refresh_from_db()
    assert (row.state, row.mark_by) == ("superseded", again.id)


def _ref(row: JobIntent) -> Ref:
    return Ref(row.shard, row.fingerprint)
