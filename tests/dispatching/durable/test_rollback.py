"""U25: what is rolled back leaves no message and no lock, in every nesting; what survives goes out."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from django.db import transaction

from django_jobdedup import Undecided, outcome_of
from tests.dispatching.process import run_python
from tests.jobs import tasks

from .conftest import Base


@pytest.fixture
def free_afterwards(base: Base, redis_client: Any) -> Any:
    """A plain call runs after the test; between them there is nothing in Redis but the broker's bindings."""
    yield
    keys = redis_client.scan_iter(match=f"*{base.world.namespace}*")
    assert [key for key in keys if "_kombu.binding" not in key] == []
    assert [row.token for row in base.rows() if row.seat] == []
    before = base.sent()
    result = tasks.until_executed.delay("a")
    assert (result.outcome, base.sent()) == ("accepted", [*before, result.id])


@pytest.mark.usefixtures("free_afterwards")
def test_a_savepoint_that_was_released_in_a_transaction_that_was_not(base: Base) -> None:
    """The inner block ends well, the outer does not."""
    with base.failing(), base.atomic():
        tasks.until_executed.delay("a")
    assert (base.rows(), base.sent()) == ([], [])


@pytest.mark.usefixtures("free_afterwards")
def test_a_savepoint_that_was_rolled_back_in_a_transaction_that_was_not(base: Base) -> None:
    """The inner block fails, the outer commits."""
    with base.atomic(), base.failing():
        tasks.until_executed.delay("a")
    assert (base.rows(), base.sent()) == ([], [])


def test_what_the_outer_block_has_called_survives_the_inner_one(base: Base) -> None:
    """Before and after the savepoint that fails, in their order."""
    with base.atomic():
        before = tasks.until_executed.delay("before")
        with base.failing():
            lost = tasks.until_executed.delay("lost")
            with base.atomic():
                tasks.until_executed.delay("lost with it")
        after = tasks.until_executed.delay("after")
    assert base.sent() == [before.id, after.id]
    assert [row.token for row in base.rows()] == [before.id, after.id]
    assert outcome_of(lost) == "deferred"


def test_a_key_that_was_rolled_back_is_free_for_the_outer_block(base: Base) -> None:
    """The failed savepoint has left nothing that could refuse."""
    with base.atomic():
        with base.failing():
            tasks.until_executed.delay("a")
        again = tasks.until_executed.delay("a")
    assert (again.outcome, base.sent()) == ("accepted", [again.id])


@pytest.mark.usefixtures("free_afterwards")
def test_a_process_that_is_killed_before_the_commit(base: Base) -> None:
    """The database takes everything back."""
    world = base.elsewhere()
    told = run_python(
        world,
        f"""
        import os, signal, sys
        from django.db import transaction
        from tests.jobs import tasks
        with transaction.atomic(using={base.using!r}):
            tell(str(tasks.until_executed.delay("a").outcome))
            os._exit(0)
        """,
    )
    assert told == ["deferred"]
    assert (base.rows(), base.sent()) == ([], [])


@pytest.mark.usefixtures("soon")
def test_an_earlier_action_that_raises_keeps_the_row_for_the_relay(base: Base) -> None:
    """Django drops the actions behind one that raised; the row is committed, and somebody finds it."""
    with base.interrupted():
        result = tasks.until_executed.delay("a")
    assert base.sent() == []
    assert (base.states(), result.outcome) == (["pending"], "deferred")
    base.relay()
    assert base.sent() == [result.id]
    assert (result.outcome, result.duplicate) == ("accepted", False)


@pytest.mark.usefixtures("soon")
def test_the_next_transaction_is_not_kept_waiting_by_that(base: Base) -> None:
    """The action that was dropped is not waited for again."""
    with base.interrupted():
        tasks.until_executed.delay("dropped")
    with base.atomic():
        result = tasks.until_executed.delay("next")
    assert base.sent() == [result.id]


def test_a_later_action_that_raises_changes_nothing(base: Base) -> None:
    """By then the message is out."""

    def fail() -> None:
        raise LookupError

    with contextlib.suppress(LookupError), base.atomic():
        result = tasks.until_executed.delay("a")
        transaction.on_commit(fail, using=base.using)
    assert base.sent() == [result.id]


def test_a_result_that_was_rolled_back_says_so(base: Base) -> None:
    """Nobody waits for what will never run."""
    with base.atomic():
        result = tasks.until_executed.delay("a")
        with pytest.raises(Undecided, match="before the open transaction on database"):
            result.get(timeout=1)
        transaction.set_rollback(True, using=base.using)
    with pytest.raises(Undecided, match="was rolled back"):
        result.get(timeout=1)
    assert result.duplicate is None


@pytest.mark.usefixtures("soon")
def test_killed_between_the_commit_and_the_publish(base: Base) -> None:
    """What was committed runs: the relay decides and publishes what its process could not."""
    world = base.elsewhere(JOBDEDUP_CONFIRM_WITHIN=0.2)
    (task_id,) = run_python(
        world,
        f"""
        import os
        from django.db import transaction
        from tests.jobs import tasks
        with transaction.atomic(using={base.using!r}):
            transaction.on_commit(lambda: os._exit(0), using={base.using!r})
            tell(tasks.until_executed.delay("a").id)
        """,
    )
    assert (base.states(), base.sent()) == (["pending"], [])
    base.relay()
    assert (base.states(), base.sent()) == (["published"], [task_id])


@pytest.mark.usefixtures("soon")
def test_killed_between_the_publish_and_the_note_of_it(base: Base) -> None:
    """The same id goes out again; the claim will make it one run."""
    world = base.elsewhere(JOBDEDUP_CONFIRM_WITHIN=0.2)
    (task_id,) = run_python(
        world,
        f"""
        import os
        from celery.signals import after_task_publish
        from django.db import transaction
        from tests.jobs import tasks
        after_task_publish.connect(lambda **_: os._exit(0), weak=False)
        with transaction.atomic(using={base.using!r}):
            tell(tasks.until_executed.delay("a").id)
        """,
    )
    assert base.sent() == [task_id]
    base.relay()
    assert (base.states(), base.sent()) == (["published"], [task_id, task_id])
