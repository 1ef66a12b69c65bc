"""Which policy holds for a call: per call, by settings, by canvas; and how a call goes past it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.test import override_settings

from django_jobdedup import PolicyError, Unique
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import jobs
from .looking import locks, messages, state

NODE = {"concurrency": 4}
NAME = "tests.jobs.tasks.until_executed"


def header(client: redis.Redis, world: Environment, queue: str) -> Any:
    """Give our header of the only message in a queue."""
    (message,) = messages(client, world.namespace, queue)
    return message["headers"].get("jobdedup")


def test_a_dict_overrides_one_option_of_one_call(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    result = jobs.noticing.apply_async((key,), queue=key, unique={"ttl": 10})
    ((fingerprint, knobs),) = header(redis_client, world, key)["k"]
    assert fingerprint == result.fingerprint
    assert (knobs["t"], knobs["e"]) == (10, 3), "the lease is the task's"
    assert jobs.noticing.apply_async((key,), queue=key).id == result.id, "one lock with plain calls"


def test_an_instance_replaces_the_whole_policy(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    jobs.noticing.apply_async((key,), queue=key, unique=Unique("until_executing", ttl=10))
    ((_, knobs),) = header(redis_client, world, key)["k"]
    assert (knobs["l"], knobs["t"]) == ("until_executing", 10)
    assert "e" not in knobs, "the lease is the default again"


def test_our_options_never_reach_the_message(world: Environment, redis_client: redis.Redis, key: str) -> None:
    """Celery would write an unknown option into the properties of the message."""
    jobs.noticing.apply_async((key,), queue=key, unique={"ttl": 10})
    tasks.plain.apply_async((key,), queue=key, unique=False)
    for message in messages(redis_client, world.namespace, key):
        assert "unique" not in message["properties"]
        assert "unique" not in message["headers"]


def test_true_gives_a_task_without_a_policy_the_defaults(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first, second = (tasks.plain.apply_async((key,), queue=key, unique=True) for _ in range(2))
    assert [first.outcome, second.outcome] == ["accepted", "suppressed"]
    other = tasks.plain.apply_async((f"{key}-other",), queue=key, unique=True)
    assert other.outcome == "accepted"
    assert tasks.plain.apply_async((key,), queue=key).outcome == "unknown"


@pytest.mark.parametrize("pattern", ["tests.jobs.tasks.plain", "tests.jobs.*", "*.plain"])
def test_settings_give_a_policy_by_name_or_glob(world: Environment, key: str, pattern: str) -> None:
    with override_settings(JOBDEDUP_TASKS={pattern: {"unique": {"key": "key"}}}):
        first, second = tasks.plain.delay(key), tasks.plain.delay(key, seconds=1)
        assert [first.outcome, second.outcome] == ["accepted", "suppressed"]
    assert tasks.plain.delay(key).outcome == "unknown"


def test_settings_turn_a_policy_off(world: Environment, key: str) -> None:
    with override_settings(JOBDEDUP_TASKS={NAME: {"unique": False}}):
        assert [tasks.until_executed.delay(key).outcome for _ in range(2)] == ["unknown"] * 2
    assert tasks.until_executed.delay(key).outcome == "accepted"


def test_defaults_hold_where_nobody_says_otherwise(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    with override_settings(JOBDEDUP_DEFAULTS={"ttl": 77, "lease": 9, "on_conflict": "log"}):
        tasks.plain.apply_async((key,), queue=key, unique=True)
        ((_, knobs),) = header(redis_client, world, key)["k"]
        assert (knobs["t"], knobs["e"]) == (77, 9)
        jobs.noticing.apply_async((key,), queue=f"{key}-2")
        ((_, knobs),) = header(redis_client, world, f"{key}-2")["k"]
        assert (knobs["t"], knobs["e"]) == (3600, 3), "the task has said so"


def test_options_travel_in_a_signature(world: Environment, redis_client: redis.Redis, key: str) -> None:
    signature = tasks.plain.si(key).set(unique=Unique(key="key", ttl=10), queue=key)
    first, second = signature.clone().delay(), signature.clone().delay()
    assert [first.outcome, second.outcome] == ["accepted", "suppressed"]
    ((_, knobs),) = header(redis_client, world, key)["k"]
    assert knobs["t"] == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unique": {"nonsense": 1}}, "nonsense"),
        ({"unique": {"ttl": -1}}, "ttl"),
        ({"unique": "yes"}, "'yes'"),
        ({"debounce": 30}, "debounce"),
        ({"throttle": "2/s"}, "throttle"),
    ],
)
def test_a_wrong_option_is_an_error_before_anything_is_locked(
    world: Environment, redis_client: redis.Redis, key: str, options: dict[str, Any], said: str
) -> None:
    before = locks(redis_client, world.namespace)
    with pytest.raises(PolicyError, match=said):
        jobs.noticing.apply_async((key,), queue=key, **options)
    assert messages(redis_client, world.namespace, key) == []
    assert locks(redis_client, world.namespace) == before


def test_a_key_that_names_no_argument_is_an_error_before_anything_is_locked(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    with pytest.raises((PolicyError, TypeError), match="tenant"):
        jobs.noticing.apply_async((key,), queue=key, unique={"key": "tenant"})
    assert messages(redis_client, world.namespace, key) == []


# Going past the policy.


@pytest.mark.worker
def test_a_bypassed_call_neither_waits_for_the_lock_nor_blocks_it(
    node: Worker, diary: Journal, key: str
) -> None:
    holder = tasks.until_executed.delay(key, 1.5)
    diary.wait_for_runs(1, key)
    past = tasks.until_executed.apply_async((key, 1.5), unique=False)
    assert past.outcome == "bypassed"
    assert past.get(timeout=10) == key
    assert len(diary.overlaps(key)) == 1, "it ran beside the holder"
    assert holder.get(timeout=10) == key
    past = tasks.until_executed.apply_async((key, 1.5), unique=False)
    diary.wait_for_runs(3, key)
    beside = tasks.until_executed.delay(key)
    assert beside.outcome == "accepted"
    assert beside.get(timeout=10) == key
    assert past.state != "SUCCESS", "the bypassed one still runs"
    assert past.get(timeout=10) == key


@pytest.mark.worker
def test_a_bypassed_call_goes_past_an_execution_lock(node: Worker, diary: Journal, key: str) -> None:
    holder = tasks.while_executing.delay(key, 1)
    diary.wait_for_runs(1, key)
    past = tasks.while_executing.apply_async((key,), unique=False)
    assert past.get(timeout=10) == key
    assert holder.state != "SUCCESS"
    assert holder.get(timeout=10) == key


@pytest.mark.worker
@pytest.mark.parametrize("task", ["retrying", "autoretrying"])
def test_the_retry_of_a_bypassed_call_is_bypassed_too(
    node: Worker, diary: Journal, key: str, task: str
) -> None:
    job = getattr(tasks, task)
    holder = tasks.until_executed.apply_async(
        (key, 1.5), unique={"lock_name": f"tests.jobs.tasks.{task}", "key": "key"}
    )
    diary.wait_for_runs(1, key)
    past = job.apply_async((key, 1), unique=False)
    assert past.get(timeout=10) == 1
    assert holder.state != "SUCCESS"
    assert state(holder, f"tests.jobs.tasks.{task}") == [(holder.id, "R")]
    assert holder.get(timeout=10) == key


@pytest.mark.worker
@pytest.mark.parametrize("task", ["raising", "ignoring", "rejecting"])
def test_a_bypassed_call_may_end_in_any_way(node: Worker, diary: Journal, key: str, task: str) -> None:
    past = app.send_task(f"tests.jobs.tasks.{task}", [key], unique=False)
    (run,) = diary.wait_for_ends(1, key)
    assert run.id == past.id
    assert app.send_task(f"tests.jobs.tasks.{task}", [key]).outcome == "accepted"
    diary.wait_for_ends(2, key)
    assert "IndexError" not in node.log
