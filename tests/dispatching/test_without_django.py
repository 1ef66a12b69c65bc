"""A sender that never calls ``django.setup()``: it installs the hook itself."""

from __future__ import annotations

import pytest

from tests.rig.environment import Environment

from .process import run_python

DATABASE = {"BACKEND": "django_jobdedup.stores.database.store.DatabaseStore", "LOCATION": "default"}
REDIS = {"BACKEND": "django_jobdedup.stores.redis.store.RedisStore", "LOCATION": "jobdedup"}

SENDER = """
import os, json
import django_jobdedup
from testproject.celery import app
django_jobdedup.install()
name = "tests.jobs.tasks.until_executed"
results = [app.send_task(name, ["a"], unique={"key": []}) for _ in range(2)]
tell([str(result.outcome) for result in results])
try:
    app.send_task(name, ["a"], unique={"key": [], "store": "durable"})
except Exception as error:
    tell(str(error))
"""


REJECTING = """
import django_jobdedup
from testproject.celery import app
django_jobdedup.install()
unique = {"key": [], "on_conflict": "reject"}
app.send_task("tests.jobs.tasks.until_executed", ["a"], unique=unique)
try:
    app.send_task("tests.jobs.tasks.until_executed", ["a"], unique=unique)
except Exception as error:
    tell(str(error))
"""

BATCH = """
import django_jobdedup
from testproject.celery import app
django_jobdedup.install()
name = "tests.jobs.tasks.until_executed"
first = app.signature(name, [1]).set(unique={"key": []})
second = app.signature(name, [1]).set(unique={"key": [], "store": "durable"})
try:
    django_jobdedup.dispatch_many([first, second])
except Exception as error:
    tell(str(error))
tell(str(app.send_task(name, [1], unique={"key": []}).outcome))
"""


def test_a_job_that_should_be_dead_says_what_is_missing(celery_env: Environment) -> None:
    (error,) = run_python(celery_env, REJECTING, setup=False)
    assert "The list of dead jobs is in the database: call django.setup() first" in error


@pytest.mark.environment(settings={"JOBDEDUP_STORES": {"default": REDIS, "durable": DATABASE}})
def test_a_batch_that_needs_it_takes_no_seat_in_the_other_store(celery_env: Environment) -> None:
    error, outcome = run_python(celery_env, BATCH, setup=False)
    assert "call django.setup() first" in error
    assert outcome == "accepted", "nobody has the seat"


@pytest.mark.environment(settings={"JOBDEDUP_STORES": {"default": REDIS, "durable": DATABASE}})
def test_a_database_store_beside_the_one_of_the_call_is_not_in_its_way(celery_env: Environment) -> None:
    outcomes, error = run_python(celery_env, SENDER, setup=False)
    assert outcomes == ["accepted", "suppressed"]
    assert "JOBDEDUP_STORES['durable'] keeps its locks in the database: call django.setup() first." in error
