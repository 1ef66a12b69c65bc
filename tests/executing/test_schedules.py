"""Schedulers that send too much: beat is faster than the work (case U06), two beats send the same (U08)."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import redis

from django_jobdedup.stores.handler import stores
from tests.conftest import StartBeat, StartWorker
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for

from . import strategy_tasks as tasks

pytestmark = [
    pytest.mark.worker,
    pytest.mark.timeout(90),
    pytest.mark.environment(celery={"imports": [tasks.MODULE]}),
]

WORK = 1.0
"""Seconds of a run: four times the interval of its schedule."""


def entry(task: Any, key: str, *args: Any, every: float) -> dict[str, Any]:
    """Give a beat entry; each key has a queue of its own."""
    return {"task": task.name, "schedule": every, "args": [key, *args], "options": {"queue": key}}


def test_beat_that_is_faster_than_the_work_queues_and_runs_one(
    celery_env: Environment,
    worker: StartWorker,
    beat: StartBeat,
    journal: Journal,
    redis_client: redis.Redis,
) -> None:
    """Case U06: one job at a time, or one more that waits; a fast account beside them is not slowed."""
    slow = {"one": tasks.polling, "more": tasks.polling_and_again}
    worker(concurrency=4, queues=(*slow, "fast"))
    speed = f"{celery_env.namespace}:speed"
    redis_client.set(speed, WORK)
    schedule = {key: entry(task, key, every=0.25) for key, task in slow.items()}
    scheduler = beat({**schedule, "fast": entry(tasks.polling, "fast", 0.0, every=0.25)})
    longest = 0
    until = time.monotonic() + 5
    while time.monotonic() < until:
        longest = max([longest, *(redis_client.llen(f"{celery_env.namespace}:{key}") for key in slow)])
        time.sleep(0.1)
    sent = scheduler.log.count("Sending due task")
    assert sent > 30
    assert longest <= 1, "the queue does not grow"
    for key in slow:
        assert journal.overlaps(key) == []
        assert 3 <= len(journal.runs(key)) <= 6, "about one a second"
    assert len(journal.runs("fast")) > 10, "the other account goes on at its own pace"
    refused = refusals(tasks.polling, tasks.polling_and_again)
    assert refused >= sent / 3, "what was refused is counted"
    redis_client.set(speed, 0.0)
    for key in slow:
        slowly = len(journal.runs(key))
        begun = time.monotonic()
        journal.wait_for_ends(slowly + 5, key)
        assert time.monotonic() - begun < 3, "now every tick finds the way free"
    assert "ERROR" not in scheduler.log
    assert "Traceback" not in scheduler.log


def refusals(*asked: Any) -> int:
    """Give how many calls of some tasks were refused."""
    counted = stores["default"].counters()
    assert isinstance(counted, dict)
    return sum(counted[task.name].get("held", 0) for task in asked)


def test_two_beats_run_one_job_a_slot(worker: StartWorker, beat: StartBeat, journal: Journal) -> None:
    """Case U08: the first copy has ended before the second comes, so the lock has to outlive the run."""
    worker(concurrency=2, queues=("slot",))
    schedule = {"tick": entry(tasks.once_a_slot, "slot", every=2.0)}
    schedulers = [beat(schedule), beat(schedule)]
    wait_for(lambda: min(each.log.count("Sending due task") for each in schedulers) >= 4, 20)
    runs = journal.wait_for_ends(4, "slot", timeout=20)
    sent = [scheduler.log.count("Sending due task") for scheduler in schedulers]
    assert len(runs) <= max(sent) + 1
    gaps = [later.started - earlier.started for earlier, later in itertools.pairwise(runs)]
    assert min(gaps) > 1.0, "never two in one slot"


def test_a_schedule_gone_wild_is_one_job_and_one_lock(
    celery_env: Environment, worker: StartWorker, journal: Journal, redis_client: redis.Redis
) -> None:
    """Case U08: a thousand sends within one slot."""
    options = {"queue": "slot", "unique": {"ttl": 60}}

    def keys(kind: str = "") -> set[str]:
        return set(redis_client.scan_iter(match=f"{{{celery_env.namespace}:*{kind}*", count=1000))

    results = [tasks.once_a_slot.apply_async(("wild",), **options) for _ in range(10)]
    few = keys()
    results += [tasks.once_a_slot.apply_async(("wild",), **options) for _ in range(990)]
    assert len({result.id for result in results}) == 1
    assert [result.outcome for result in results].count("accepted") == 1
    assert keys() == few, "a refusal leaves no key"
    assert len(keys(":lock:")) == 1
    worker(queues=("slot",))
    journal.wait_for_ends(1, "wild")
    wait_for(lambda: redis_client.llen(f"{celery_env.namespace}:slot") == 0)
    assert len(journal.runs("wild")) == 1
