"""What a dispatch and an execution cost, counted by the server itself."""

from __future__ import annotations

import time

import pytest
import redis

from django_jobdedup.dispatching.confirm import DELAY, confirmer
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.monitor import Monitor
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from .looking import ids, locks, store_calls

NODE = {"concurrency": 1}


@pytest.fixture
def warm(world: Environment, redis_client: redis.Redis, key: str) -> None:
    """Connections are open and scripts are loaded, as in any process after its first call."""
    tasks.until_executed.delay(f"{key}-warm")
    tasks.until_executed.delay(f"{key}-warm")
    tasks.plain.delay(f"{key}-warm")
    confirmer.flush()


def publishes(monitor: Monitor, namespace: str) -> list[float]:
    """Give the server times of the messages that were put into the queue."""
    return [each.at for each in monitor.commands("LPUSH") if each.words[1] == f"{namespace}:celery"]


def test_an_accepted_dispatch_asks_once_before_the_publish_and_confirms_in_the_background(
    world: Environment, warm: None, monitor: Monitor, key: str
) -> None:
    with monitor:
        assert tasks.until_executed.delay(key).outcome == "accepted"
        confirmer.flush()
    (published,) = publishes(monitor, world.namespace)
    before, after = [], []
    for call in store_calls(monitor, world.namespace):
        (before if call.at < published else after).append(call.name)
    assert before == ["EVALSHA"]
    assert after == ["EVALSHA"]


def test_a_suppressed_dispatch_asks_once_and_publishes_nothing(
    world: Environment, warm: None, monitor: Monitor, key: str
) -> None:
    tasks.until_executed.delay(key)
    confirmer.flush()
    with monitor:
        assert tasks.until_executed.delay(key).outcome == "suppressed"
        confirmer.flush()
    assert [call.name for call in monitor.touching(world.namespace)] == ["EVALSHA"]


def test_a_while_executing_lock_costs_the_dispatch_nothing(
    world: Environment, warm: None, monitor: Monitor, key: str
) -> None:
    with monitor:
        tasks.while_executing.delay(key)
        confirmer.flush()
    assert len(publishes(monitor, world.namespace)) == 1
    assert store_calls(monitor, world.namespace) == []


@pytest.mark.parametrize("way", ["no policy", "bypassed"])
def test_a_call_without_a_policy_costs_nothing(
    world: Environment, warm: None, monitor: Monitor, key: str, way: str
) -> None:
    with monitor:
        if way == "no policy":
            tasks.plain.delay(key)
        else:
            tasks.until_executed.apply_async((key,), unique=False)
        confirmer.flush()
    assert len(publishes(monitor, world.namespace)) == 1
    assert store_calls(monitor, world.namespace) == []


def test_confirms_go_in_batches(world: Environment, warm: None, monitor: Monitor, key: str) -> None:
    """A batch holds up to 200 seats or 50 ms of dispatches, so 300 of them need a handful of scripts."""
    with monitor:
        started = time.monotonic()
        for number in range(300):
            tasks.until_executed.delay(f"{key}-{number}")
        confirmer.flush()
        took = time.monotonic() - started
    assert len(publishes(monitor, world.namespace)) == 300
    confirms = len(store_calls(monitor, world.namespace)) - 300
    assert 1 <= confirms <= 3 + 2 * took / DELAY, "a slow machine has more of these windows"


@pytest.mark.worker
@pytest.mark.parametrize("task", ["plain", "until_executed", "while_executing", "until_and_while_executing"])
def test_an_execution_asks_at_most_twice(
    world: Environment,
    redis_client: redis.Redis,
    node: Worker,
    diary: Journal,
    monitor: Monitor,
    key: str,
    task: str,
) -> None:
    """Claim and finish; a renewal comes only for runs longer than a third of the lease."""
    job = getattr(tasks, task)
    job.delay(f"{key}-warm").get(timeout=10)
    wait_for(lambda: ids(redis_client, world.namespace) == [], 20, what="an empty queue")
    wait_for(lambda: locks(redis_client, world.namespace) == [], 20, what="no locks")
    confirmer.flush()
    with monitor:
        assert job.delay(key).get(timeout=10) == key
        confirmer.flush()
    calls = store_calls(monitor, world.namespace)
    dispatch = {"plain": 0, "while_executing": 0}.get(task, 2)
    execution = 0 if task == "plain" else 2
    assert len(calls) - dispatch == execution, calls
