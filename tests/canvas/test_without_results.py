"""Where there is no result to take, a promised call does its work; and it never runs beside an equal one."""

from __future__ import annotations

import secrets

import pytest
from celery import chain

from tests.conftest import StartWorker
from tests.rig.environment import Environment
from tests.rig.journal import Journal

from . import tasks
from .conftest import WAIT

pytestmark = [pytest.mark.worker, pytest.mark.timeout(90)]

WORKER = {"imports": [tasks.MODULE]}


def test_a_task_that_keeps_no_result_runs_as_often_as_it_is_promised(
    worker: StartWorker, celery_env: Environment, journal: Journal
) -> None:
    """``ignore_result`` on the task, and at the call; the next step of each chain goes on."""
    worker(celery_env.having(celery=WORKER), concurrency=4)
    key, other = secrets.token_hex(4), secrets.token_hex(4)
    quick = {"lock": "until_and_while_executing", "on_conflict": tasks.QUICK}
    first, second = (
        tasks.forgetful.apply_async(
            (key,), countdown=1.0, unique=quick, task_id=f"{key}-{n}", link=tasks.quiet.si(f"{key}-{n}")
        )
        for n in range(2)
    )
    assert (first.outcome, second.outcome) == ("accepted", "bypassed")
    quick_soon = {"unique": quick, "countdown": 1.0}  # the first waits while the second is asked for
    third = tasks.follow.apply_async((other,), task_id=f"{other}-0", **quick_soon)
    fourth = tasks.follow.apply_async((other,), task_id=f"{other}-1", ignore_result=True, **quick_soon)
    assert (third.outcome, fourth.outcome) == ("accepted", "bypassed")
    for one in (key, other):
        assert len(journal.wait_for_ends(2, one, WAIT)) == 2
        assert journal.overlaps(one) == []
    for n in range(2):
        journal.wait_for_ends(1, f"{key}-{n}", WAIT)


@pytest.mark.environment(celery={"result_backend": "disabled://"})
def test_without_a_result_backend_promised_calls_run_and_marked_ones_end(
    worker: StartWorker, celery_env: Environment, journal: Journal
) -> None:
    worker(celery_env.having(celery=WORKER), concurrency=4)
    key, other = secrets.token_hex(4), secrets.token_hex(4)
    for n in range(2):
        chain(tasks.again.si(key), tasks.quiet.si(f"{key}-{n}")).apply_async(unique={"canvas": "follow"})
        chain(tasks.mark.si(other), tasks.quiet.si(f"{other}-{n}")).apply_async()
    for one in (f"{key}-0", f"{key}-1", f"{other}-0", f"{other}-1"):
        journal.wait_for_ends(1, one, WAIT)
    assert (len(journal.runs(key)), len(journal.runs(other))) == (2, 1)
    assert journal.overlaps(key) == []
