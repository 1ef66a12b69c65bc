"""Workers whose middleware does not lock: no message takes a seat that nobody would give back."""

from __future__ import annotations

import pytest
from celery import chain, group

from django_jobdedup import peek
from tests.conftest import StartWorker
from tests.jobs import tasks
from tests.rig.environment import Environment


@pytest.mark.worker
@pytest.mark.environment(settings={"JOBDEDUP_MIDDLEWARE": []})
def test_nothing_is_locked_and_a_chain_of_equal_steps_ends(
    celery_env: Environment, worker: StartWorker
) -> None:
    worker()
    assert tasks.until_executed.delay("a").get(timeout=10) == "a"
    assert peek(tasks.until_executed, "a") is None
    chained = chain(tasks.until_executed.si("a"), tasks.until_executed.si("a")).apply_async()
    assert chained.get(timeout=10) == "a"


@pytest.mark.worker
def test_a_follower_from_a_sender_that_locks_runs_by_itself(
    celery_env: Environment, worker: StartWorker
) -> None:
    """Nobody here gives back the seat of the job that it follows: it would wait until the TTL."""
    worker(celery_env.having(settings={"JOBDEDUP_MIDDLEWARE": []}))
    both = group(tasks.until_executed.si("a"), tasks.until_executed.si("a")).apply_async()
    assert both.get(timeout=10) == ["a", "a"]
