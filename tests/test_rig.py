"""The rig itself: a plain Celery task, without any lock, seen through every instrument."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from celery.exceptions import TimeoutError as CeleryTimeoutError
from django.conf import settings

from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis

from .conftest import StartBeat, StartWorker
from .jobs import tasks
from .rig.beat import WITHOUT_TASKS
from .rig.environment import Environment
from .rig.journal import Journal, Run
from .rig.monitor import Monitor, read_line
from .rig.process import alive
from .rig.redelivery import FAST_REDELIVERY, restore_lapsed
from .rig.waiting import wait_for


def run(started: float, ended: float | None, seen: float = 0.0) -> Run:
    """A run for the arithmetic of overlaps."""
    return Run(1, "t", "k", "id", 1, 1, 0, False, started, ended or seen, ended, "returned")


@pytest.mark.worker
def test_a_worker_runs_a_task_and_the_journal_tells_of_it(worker: StartWorker, journal: Journal) -> None:
    node = worker()
    result = tasks.plain.delay("a", seconds=0.2)
    assert result.get(timeout=10) == "a"
    (seen,) = journal.runs("a")
    assert (seen.id, seen.attempt, seen.retries, seen.redelivered) == (result.id, 1, 0, False)
    assert seen.pid in node.children()
    assert seen.how == "returned"
    assert seen.ended is not None
    assert seen.ended - seen.started >= 0.2


@pytest.mark.worker
def test_a_killed_worker_takes_its_children_and_leaves_an_open_run(
    worker: StartWorker, journal: Journal
) -> None:
    node = worker()
    tasks.plain.delay("a", seconds=30)
    journal.wait_for_runs(1, "a")
    pids = node.pids()
    assert len(pids) == 3
    node.kill()
    assert node.exit_code == -9
    wait_for(lambda: not any(alive(pid) for pid in pids), 5, what="the end of the pool")
    (cut_off,) = journal.runs("a")
    assert cut_off.ended is None
    assert cut_off.how is None


@pytest.mark.worker
def test_a_killed_child_is_replaced_and_its_worker_lives_on(worker: StartWorker, journal: Journal) -> None:
    node = worker(concurrency=1)
    tasks.plain.delay("a", seconds=30)
    journal.wait_for_runs(1, "a")
    killed = node.kill_child()
    assert tasks.plain.delay("b").get(timeout=15) == "b"
    assert node.running
    assert killed not in node.children()


@pytest.mark.worker
def test_a_warm_shutdown_lets_the_body_end(worker: StartWorker, journal: Journal) -> None:
    node = worker(concurrency=1)
    tasks.plain.delay("a", seconds=1)
    journal.wait_for_runs(1, "a")
    node.terminate()
    assert node.wait() == 0
    assert [seen.how for seen in journal.runs("a")] == ["returned"]


@pytest.mark.worker
@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_other_pools_run_too(worker: StartWorker, pool: str) -> None:
    worker(pool=pool)
    assert tasks.plain.delay("a").get(timeout=10) == "a"


@pytest.mark.worker
@pytest.mark.environment(celery={"broker_transport_options": FAST_REDELIVERY})
def test_after_a_kill_the_late_ack_comes_again_and_the_early_one_does_not(
    worker: StartWorker, journal: Journal
) -> None:
    first = worker(concurrency=2)
    tasks.plain.delay("early", seconds=30)
    late = tasks.plain_late.delay("late", seconds=2)
    journal.wait_for_runs(2)
    first.kill()
    worker(concurrency=2)

    def ended() -> bool:
        restore_lapsed(app)
        return bool(journal.ended("late"))

    wait_for(ended, 15, every=0.5, what="the redelivery")
    assert late.get(timeout=5) == "late"
    cut_off, again = journal.runs("late")
    assert (cut_off.ended, cut_off.attempt) == (None, 1)
    assert (again.id, again.attempt, again.redelivered) == (late.id, 2, True)
    assert len(journal.runs("early")) == 1


@pytest.mark.worker
def test_a_worker_may_differ_from_the_world_of_its_test(
    worker: StartWorker, celery_env: Environment, journal: Journal
) -> None:
    worker(celery_env.having(celery={"task_time_limit": 1}), concurrency=1)
    tasks.plain.delay("a", seconds=30)
    (cut_off,) = journal.wait_for_ends(1, "a")
    assert cut_off.how == "SystemExit"


@pytest.mark.worker
def test_a_worker_that_cannot_start_shows_its_log(worker: StartWorker) -> None:
    with pytest.raises(AssertionError, match="No such option"):
        worker(options=["--no-such-option"])


@pytest.mark.worker
@pytest.mark.parametrize("app_name", ["testproject", WITHOUT_TASKS])
def test_beat_sends_what_the_schedule_says(
    beat: StartBeat, worker: StartWorker, journal: Journal, app_name: str
) -> None:
    worker(concurrency=1)
    beat({"tick": {"task": "tests.jobs.tasks.plain", "schedule": 0.5, "args": ["tick"]}}, app=app_name)
    journal.wait_for_runs(3, "tick")


def test_the_tests_run_on_their_own_settings() -> None:
    assert os.environ["DJANGO_SETTINGS_MODULE"] == "tests.settings"
    assert settings.JOURNAL_URL


def test_each_test_lives_in_a_namespace_of_its_own(
    celery_env: Environment, redis_client: redis.Redis, redis_server: GivenRedis | EmbeddedRedis
) -> None:
    before = set(redis_client.scan_iter())
    result = tasks.plain.delay("a")
    assert settings.JOBDEDUP_NAMESPACE == celery_env.namespace  # noqa: SIM300 - no constant
    assert redis_client.llen(f"{celery_env.namespace}:celery") == 1
    assert app.backend.get_key_for_task(result.id).decode().startswith(f"{celery_env.namespace}:")
    if isinstance(redis_server, EmbeddedRedis):  # a given one may hold what is others'
        new = set(redis_client.scan_iter()) - before
        assert [key for key in new if celery_env.namespace not in key] == []


def test_a_world_is_cleaned_and_left(celery_env: Environment, redis_client: redis.Redis) -> None:
    inner = Environment(f"{celery_env.namespace}-inner", celery_env.redis_url)
    with inner.entered(app):
        tasks.plain.delay("a")
        assert redis_client.exists(f"{inner.namespace}:celery")
    tasks.plain.delay("b")
    inner.clean()
    assert not redis_client.exists(f"{inner.namespace}:celery")
    assert redis_client.llen(f"{celery_env.namespace}:celery") == 1


def test_a_world_that_is_left_keeps_no_connection_of_any_thread(celery_env: Environment) -> None:
    """The collector would warn of it later, in a test that has nothing to do with it."""
    inner = Environment(f"{celery_env.namespace}-inner", celery_env.redis_url)

    def wait_in_vain() -> Any:
        result = tasks.plain.delay("a")
        with pytest.raises(CeleryTimeoutError):
            result.get(timeout=0.01)
        return result.backend

    with inner.entered(app):
        with ThreadPoolExecutor(4) as pool:
            backends = list(pool.map(lambda _: wait_in_vain(), range(4)))
        pools = [backend.client.connection_pool for backend in backends]
        assert any(connection.is_connected for connection in connections_of(pools))
    inner.clean()
    assert [connection for connection in connections_of(pools) if connection.is_connected] == []


def connections_of(pools: list[Any]) -> list[Any]:
    return [each for pool in pools for each in (*pool._available_connections, *pool._in_use_connections)]


def test_the_monitor_counts_round_trips_and_not_what_scripts_do(
    monitor: Monitor, celery_env: Environment, redis_client: redis.Redis
) -> None:
    key = f"{celery_env.namespace}:k"
    redis_client.set(key, "before")
    with monitor:
        redis_client.set(key, 'a "quoted" \\ value')
        redis_client.eval("return redis.call('GET', KEYS[1])", 1, key)
    redis_client.set(key, "after")
    assert [command.name for command in monitor.commands()] == ["SET", "EVAL"]
    assert monitor.commands("set")[0].words == ("SET", key, 'a "quoted" \\ value')
    assert len(monitor.touching(key)) == 2
    with monitor:
        redis_client.get(key)
    assert [command.name for command in monitor.commands()] == ["GET"], "a new phase starts empty"


def test_a_line_that_is_none_of_monitors_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line of MONITOR"):
        read_line(b"OK")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (run(0, 2), run(1, 3), True),
        (run(1, 3), run(0, 2), True),
        (run(0, 9), run(1, 2), True),
        (run(0, 1), run(1, 2), False),
        (run(0, None, seen=4), run(3, 5), True),
        (run(0, None, seen=2), run(3, 5), False),
    ],
    ids=["tail", "head", "inside", "after", "cut off late", "cut off before"],
)
def test_overlaps_are_found(first: Run, second: Run, expected: bool) -> None:
    assert first.overlaps(second) is expected


def test_waiting_in_vain_says_for_what() -> None:
    begun = time.monotonic()
    with pytest.raises(AssertionError, match="in vain for a miracle"):
        wait_for(lambda: None, 0.1, what="a miracle")
    assert time.monotonic() - begun < 1
