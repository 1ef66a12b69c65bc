"""A task id that its caller gives again is a new job: it runs. A copy of one message is not."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from celery import chain

from django_jobdedup import Outcome, PolicyError
from testproject.celery import app

from . import tasks
from .conftest import Stage, new_key, send_raw

pytestmark = pytest.mark.worker


@pytest.mark.parametrize("task", [tasks.early, tasks.late, tasks.mutex], ids=["early", "late", "mutex"])
def test_an_id_that_is_given_again_after_its_end_runs_again(stage: Stage, task: Any) -> None:
    """A failed job that an operator sends again, a report that is called by its own name."""
    key, task_id = new_key("again"), f"report-{uuid.uuid4().hex[:8]}"
    for count in (1, 2, 3):
        result = task.apply_async((key,), task_id=task_id)
        assert (result.id, result.outcome, result.duplicate) == (task_id, Outcome.ACCEPTED, False)
        stage.journal.wait_for_ends(count, key)
    assert {run.id for run in stage.journal.runs(key)} == {task_id}


def test_a_chain_that_is_applied_twice_runs_every_step_twice(stage: Stage) -> None:
    """Celery keeps the id of its last step."""
    keys = [new_key(word) for word in ("first", "second", "third")]
    steps = chain(*(tasks.early.si(key) for key in keys))
    for count in (1, 2):
        steps.apply_async()
        stage.journal.wait_for_ends(count, keys[-1])
    assert [len(stage.journal.ended(key)) for key in keys] == [2, 2, 2]


def test_the_holder_is_told_by_its_plain_id(stage: Stage) -> None:
    """Whatever stands for a given id in the store."""
    key, task_id = new_key("plain"), f"report-{uuid.uuid4().hex[:8]}"
    tasks.early.apply_async((key, "succeed", 2.0), task_id=task_id)
    second = tasks.early.delay(key)
    assert (second.id, second.duplicate) == (task_id, True)
    assert second.get(timeout=10) == key


def test_a_uuid_as_task_id_works_as_in_plain_celery(stage: Stage) -> None:
    """It is taken as its text."""
    key, task_id = new_key("uuid"), uuid.uuid4()
    result = tasks.early.apply_async((key,), task_id=task_id)
    assert result.get(timeout=10) == key
    assert result.id == str(task_id)


@pytest.mark.parametrize("task_id", ["a\x1fb", "a\x1eb", "a\nb"])
def test_an_id_with_control_characters_is_refused(stage: Stage, task_id: str) -> None:
    """Before anything is locked."""
    key = new_key("odd")
    with pytest.raises(PolicyError, match="do not print"):
        tasks.early.apply_async((key,), task_id=task_id)
    assert tasks.early.delay(key).get(timeout=10) == key


def test_a_foreign_message_with_an_id_that_has_run_runs(stage: Stage) -> None:
    """Two raw messages of one id, one after the other's end: a dead letter that is replayed."""
    key, task_id = new_key("raw"), str(uuid.uuid4())
    for count in (1, 2):
        send_raw(tasks.early.name, key, task_id=task_id)
        stage.journal.wait_for_ends(count, key)
    assert len(stage.journal.ended(key)) == 2
    assert app.AsyncResult(task_id).get(timeout=10) == key
