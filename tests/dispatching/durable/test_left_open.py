"""A body that leaves a transaction open on the store's database: its end is written all the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from django.db import connections

from django_jobdedup.middleware.releasing import give_back, is_inside
from django_jobdedup.middleware.starting import claim
from django_jobdedup.outcomes import How
from django_jobdedup.stores import later as module
from django_jobdedup.stores.later import later
from tests.jobs import tasks
from tests.rig.waiting import wait_for

from .conftest import Base


@contextlib.contextmanager
def by_hand(base: Base) -> Iterator[None]:
    """Turn autocommit off; Celery closes such a connection after the task."""
    connection = connections[base.using]
    connection.set_autocommit(False)
    yield
    connection.close()


@contextlib.contextmanager
def in_a_block(base: Base) -> Iterator[None]:
    """Enter a block that nobody leaves."""
    block = base.atomic()
    block.__enter__()
    yield
    block.__exit__(LookupError, LookupError(), None)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made up for is made up for at once."""
    monkeypatch.setattr(module, "PAUSE", 0.05)


@pytest.mark.parametrize("left", [by_hand, in_a_block])
def test_the_end_of_such_a_body_is_written_over_another_connection(
    base: Base,
    left: Callable[[Base], contextlib.AbstractContextManager[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Written into that transaction it would be gone with it, and the lock held until its lease is over."""
    task = tasks.until_executed
    with base.body(task, "a") as body:
        claimed = claim(body.execution)
        assert claimed is not None
        with left(base):
            body.ended(How.RELEASE, "success")
            give_back(body.execution, claimed)
    wait_for(lambda: base.states() == ["done"], 10, what=lambda: f"the end: {base.states()}")
    assert f"{task.name}[{body.execution.id}] has left a transaction open" in caplog.text
    wait_for(lambda: later._thread is None, 5, what="the end of the thread, with its connections")
    assert task.delay("a").outcome == "accepted"


def test_an_end_in_a_transaction_around_the_claim_too_is_written_in_it(base: Base) -> None:
    """A call that runs in its caller, or a task class that opens one: both are gone with a rollback."""
    with base.body(tasks.until_executed, "a") as body, base.failing():
        inside = is_inside(body.execution)
        claimed = claim(body.execution)
        body.ended(How.RELEASE, "success")
        give_back(body.execution, claimed, inside=inside)
        assert base.states() == ["done"]
    assert base.states() == ["published"]
    assert len(later) == 0
