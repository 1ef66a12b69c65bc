"""Case U19: a change made during a run is seen by a run that started after it, whatever dies meanwhile."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.recovery.duty import never
from django_jobdedup.recovery.reaper import reap
from tests.conftest import StartWorker
from tests.rig.environment import Environment
from tests.rig.journal import Journal, Run
from tests.rig.redelivery import FAST_REDELIVERY
from tests.rig.waiting import wait_for

from . import strategy_tasks as tasks
from .conftest import swept

KEYS = ("a", "b", "c")
WRITERS = 4


def _write(client: redis.Redis, namespace: str, stop: threading.Event, seed: int) -> int:
    """Change one thing after the other at random moments, and say so each time."""
    chance, written = random.Random(seed), 0
    while not stop.is_set():
        key = chance.choice(KEYS)
        version = client.incr(f"{namespace}:state:{key}")
        tasks.catching_up.delay(key, version)
        written += 1
        time.sleep(chance.expovariate(1 / 0.05))
    return written


@pytest.mark.worker
@pytest.mark.timeout(120)
@pytest.mark.environment(celery={"imports": [tasks.MODULE], "broker_transport_options": FAST_REDELIVERY})
def test_the_last_change_is_always_processed(
    celery_env: Environment, worker: StartWorker, journal: Journal, redis_client: redis.Redis
) -> None:
    """Four writers, three keys, two workers that are killed in the middle of runs: no state is left behind.

    A kill also loses messages that Redis has handed out and the worker has not read. Maintenance finds them.
    """
    namespace, stop = celery_env.namespace, threading.Event()

    def state(key: str, what: str = "") -> int:
        return int(redis_client.get(f"{namespace}:state:{key}{what}") or 0)

    def lagging() -> dict[str, tuple[int, int]]:
        reap(never)
        seen = {key: (state(key), state(key, ":processed")) for key in KEYS}
        return {key: each for key, each in seen.items() if len(set(each)) > 1}

    with swept(), ThreadPoolExecutor(WRITERS) as pool:
        first = worker(concurrency=3)
        writers = [pool.submit(_write, redis_client, namespace, stop, seed) for seed in range(WRITERS)]
        try:
            for _ in range(2):
                started = len(journal.runs())
                journal.wait_for_runs(started + 4, timeout=20)
                first.kill()
                first = worker(concurrency=3)
        finally:
            stop.set()
        written = sum(writer.result() for writer in writers)
        confirmer.flush()
        wait_for(lambda: not lagging(), 40, every=0.2, what=lambda: f"state, processed: {lagging()}")
        cut = [run for run in journal.runs() if run.ended is None]
    assert sum(state(key) for key in KEYS) == written
    assert cut, "the kills met running bodies"
    assert len(journal.runs()) < written / 2, "most changes shared a run"
    for key in KEYS:
        # A body that was cut off lives in the journal until its last sign of life.
        assert journal.overlaps(key) == []


MODES = (tasks.rebuilt_again, tasks.rebuilt_from_start, tasks.rebuilt_in_turn)
DOCUMENTS = 60


@pytest.mark.worker
@pytest.mark.timeout(120)
@pytest.mark.environment(celery={"imports": [tasks.MODULE]})
def test_a_change_at_any_moment_of_a_run_is_processed(
    celery_env: Environment, worker: StartWorker, journal: Journal, redis_client: redis.Redis
) -> None:
    """Sixty documents, each written twice: the second time before, in or after its first run."""
    worker(concurrency=4)

    def write_twice(number: int) -> None:
        task, chance = MODES[number % len(MODES)], random.Random(number)
        write(task, number)
        if number % 4:
            assert redis_client.blpop([f"{celery_env.namespace}:read:{number}"], 60), "the first run"
            time.sleep(chance.uniform(0.0, 2 * tasks.PROCESSING))
        write(task, number)

    def write(task: Any, number: int) -> None:
        redis_client.incr(f"{celery_env.namespace}:state:{number}")
        task.delay(str(number))

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(write_twice, range(DOCUMENTS)))
    confirmer.flush()
    processed = f"{celery_env.namespace}:processed"
    wait_for(lambda: redis_client.zcount(processed, 2, 2) == DOCUMENTS, 60, every=0.2)
    runs: dict[str, list[Run]] = {}
    for run in journal.runs():
        runs.setdefault(run.key, []).append(run)
    assert {len(some) for some in runs.values()} == {1, 2}, (
        "some of the second calls came before the first run"
    )
    both = [some for key, some in runs.items() if len(some) == 2 and MODES[int(key) % 3] is not MODES[1]]
    assert not [first for first, second in both if first.overlaps(second)]
