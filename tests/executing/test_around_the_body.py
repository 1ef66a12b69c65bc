"""What strikes just before or after the body leaves no seat behind, and frees none that is in use."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.conf import settings

from django_jobdedup import Outcome
from django_jobdedup.call import Execution
from django_jobdedup.conf import DEFAULT_MIDDLEWARE
from django_jobdedup.middleware.base import Middleware
from testproject.embedded_redis import EmbeddedRedis
from tests.rig.environment import Environment
from tests.rig.journal import Journal

from . import tasks
from .conftest import IMPORTS, Stage, call_until_accepted, new_key

pytestmark = pytest.mark.worker


class Raising(Middleware):
    """A layer outside the lock that fails the executions of keys that say so."""

    def execute(self, execution: Execution, call_next: Callable[[Execution], Any]) -> Any:
        """Raise before the claim."""
        if str(execution.task_object.request.args[0]).startswith("raise"):
            raise RuntimeError("a layer of the project's own")
        return call_next(execution)


OUTER = {"JOBDEDUP_MIDDLEWARE": [f"{__name__}.Raising", *DEFAULT_MIDDLEWARE]}


def test_a_body_that_calls_its_own_run_stays_inside_its_lock(stage: Stage) -> None:
    """The inner call is a plain function call: it neither claims nor frees."""
    key = new_key("itself")
    first = tasks.running_itself.delay(key, 2.0)
    stage.journal.wait_for_runs(2, key)  # the inner one has ended, the outer one runs
    time.sleep(0.2)
    assert tasks.running_itself.delay(key, 0.0).id == first.id
    assert first.get(timeout=10) == key
    assert tasks.running_itself.delay(key, 0.0, again=False).outcome is Outcome.ACCEPTED


@pytest.mark.environment(celery=IMPORTS, settings=OUTER)
@pytest.mark.parametrize("task", [tasks.early, tasks.late], ids=["early", "late"])
def test_a_layer_that_raises_before_the_claim_frees_the_waiting_seat(
    worker: Any, task: Any, celery_env: Environment
) -> None:
    """The job ends as a failure, so its lock ends as well."""
    worker()
    key = new_key("raise")
    failed = task.delay(key)
    with pytest.raises(RuntimeError):
        failed.get(timeout=10)
    again = call_until_accepted(lambda: task.apply_async((key,), countdown=600), timeout=2.0)
    assert again.id != failed.id


@pytest.mark.timeout(90)
def test_a_release_that_an_outage_held_up_is_made_before_the_process_is_recycled(
    celery_env: Environment, worker: Any
) -> None:
    """With late ack nothing else would free the key for hours."""
    with EmbeddedRedis() as server:
        caches = copy.deepcopy(settings.CACHES)
        caches["jobdedup"]["LOCATION"] = server.url
        away = celery_env.having(celery=IMPORTS, settings={"CACHES": caches})
        worker(away, options=["--max-tasks-per-child", "1"])
        key = new_key("recycled")
        with away.entered(tasks.late.app), redis.Redis.from_url(server.url) as client:
            job = tasks.late.delay(key, "succeed", 1.0)
            journal = Journal(away.redis_url, away.namespace)
            journal.wait_for_runs(1, key)
            client.config_set("maxmemory", 1)
            journal.wait_for_ends(1, key)
            time.sleep(1.0)
            client.config_set("maxmemory", 0)
            again = call_until_accepted(lambda: tasks.late.delay(key), timeout=6.0)
            assert again.id != job.id
            journal.close()


@pytest.mark.environment(celery=IMPORTS)
def test_one_store_that_cannot_be_reached_leaves_the_leases_of_the_others_alone(
    celery_env: Environment, worker: Any, journal: Journal
) -> None:
    """A second alias whose server is away."""
    caches = copy.deepcopy(settings.CACHES)
    caches["gone"] = {**caches["jobdedup"], "LOCATION": "redis://127.0.0.1:1/0"}
    backend = "django_jobdedup.stores.redis.store.RedisStore"
    two = {
        "default": {"BACKEND": backend, "LOCATION": "jobdedup"},
        "other": {"BACKEND": backend, "LOCATION": "gone"},
    }
    worker(celery_env.having(settings={"CACHES": caches, "JOBDEDUP_STORES": two}))
    key = new_key("two")
    first = tasks.early.delay(key, "succeed", 3 * tasks.LEASE)
    journal.wait_for_runs(1, key)
    time.sleep(tasks.LEASE + 1.0)
    assert tasks.early.delay(key).id == first.id
