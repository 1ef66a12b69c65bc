"""Canvas over a store that keeps calls: decided after the commit, or by the relay, they follow as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from celery import chain, chord, group
from django.db import transaction
from django.test import override_settings

from django_jobdedup.models import JobIntent
from tests.rig.engines import Engine, Engines
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import tasks
from .conftest import WAIT

pytestmark = [pytest.mark.worker, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def engine(world: Any, engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A database with the locks in it, and a worker over it."""
    with engines.open("sqlite_wal") as found, ExitStack() as stack:
        stack.enter_context(override_settings(JOBDEDUP_STORES=found.stores))
        there = world.having(settings=found.settings_as_default)
        folder = tmp_path_factory.mktemp("database")
        stack.enter_context(Worker(there, folder, concurrency=4)).wait_until_ready()
        yield found


def states(engine: Engine, *ids: str) -> list[str]:
    """Give the states of the rows of some jobs."""
    rows = {row.token.partition("\x1e")[0]: row.state for row in JobIntent.objects.using(engine.alias)}
    return [rows[id] for id in ids]


def test_workflows_of_one_transaction_share_the_work(engine: Engine, diary: Journal, key: str) -> None:
    with transaction.atomic(using=engine.alias):
        steps = [chain(tasks.follow.si(key), tasks.tail.s(f"{key}-{n}")).apply_async() for n in range(2)]
        body = chord([tasks.follow.si(key)] * 2, tasks.total.s(f"{key}-body")).apply_async()
        given = tasks.follow.apply_async((key,), task_id=f"{key}-given")
        assert given.outcome == "deferred"
    assert (given.outcome, given.duplicate, given.id) == ("followed", True, f"{key}-given")
    value = given.get(timeout=WAIT)
    assert [each.get(timeout=WAIT) for each in steps] == [value] * 2
    assert body.get(timeout=WAIT) == [value] * 2
    (run,) = diary.runs(key)
    assert value == f"{key} by {run.id}"


def test_each_mode_is_kept_with_the_call(engine: Engine, diary: Journal, key: str) -> None:
    again, mark = f"{key}-again", f"{key}-mark"
    with transaction.atomic(using=engine.alias):
        runs = [tasks.again.apply_async((again,), task_id=f"{again}-{n}") for n in range(2)]
        marks = [tasks.mark.apply_async((mark,), task_id=f"{mark}-{n}") for n in range(2)]
    assert [each.outcome for each in (*runs, *marks)] == ["accepted", "bypassed", "accepted", "followed"]
    assert len({each.get(timeout=WAIT) for each in runs}) == 2
    assert [each.get(timeout=WAIT) is None for each in marks] == [False, True]
    assert (len(diary.runs(again)), len(diary.runs(mark))) == (2, 1)
    assert diary.overlaps(again) == []


def test_one_follower_takes_over_with_its_own_row(engine: Engine, diary: Journal, key: str) -> None:
    winner = tasks.follow.apply_async((key,), countdown=1.5)
    with transaction.atomic(using=engine.alias):
        members = group(tasks.follow.si(key) for _ in range(3)).apply_async()
    winner.revoke()
    values = members.get(timeout=WAIT)
    (run,) = diary.runs(key)
    assert values == [f"{key} by {run.id}"] * 3
    assert run.id in {member.id for member in members}
    wait_for(lambda: states(engine, run.id) == ["done"], 5)
    after = tasks.follow.delay(key, 0.0)
    assert after.outcome == "accepted"
    assert after.get(timeout=WAIT)


def test_outside_of_a_transaction_they_follow_at_once(engine: Engine, diary: Journal, key: str) -> None:
    first = tasks.follow.delay(key)
    steps = chain(tasks.follow.si(key), tasks.tail.s(f"{key}-on")).apply_async()
    assert steps.get(timeout=WAIT) == first.get(timeout=WAIT)
    assert len(diary.runs(key)) == 1
