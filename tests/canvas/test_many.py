"""A thousand followers of one long job: few commands, no slot, and all end with its outcome."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import group

from django_jobdedup.executing import following
from testproject.embedded_redis import EmbeddedRedis
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import tasks

pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(240)]

FOLLOWERS = 1000
PROCESSES = 4


def test_a_thousand_followers_cost_little(
    celery_env: Environment,
    lock_server: EmbeddedRedis,
    redis_client: redis.Redis,
    journal: Journal,
    tmp_path: Path,
    settings: Any,
) -> None:
    """Locks have a Redis of their own here, so what that is asked, followers ask."""
    caches = {"jobdedup": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": lock_server.url}}
    world = celery_env.having(celery={"imports": [tasks.MODULE]}, settings={"CACHES": caches})
    settings.CACHES = caches
    with contextlib.ExitStack() as stack:
        locks = stack.enter_context(redis.Redis.from_url(lock_server.url))
        worker = stack.enter_context(Worker(world, tmp_path, concurrency=PROCESSES)).wait_until_ready()
        winner = tasks.gated.delay("long")
        journal.wait_for_runs(1, "long")
        members = group(tasks.gated.si("long") for _ in range(FOLLOWERS)).apply_async()
        wait_for(lambda: _looks(worker) >= FOLLOWERS, 60, every=0.5)
        looks, asked, since = _looks(worker), _commands(locks), time.monotonic()
        assert tasks.plain.delay("beside").get(timeout=60), "the followers leave the slots to others"
        wait_for(lambda: _looks(worker) >= looks + FOLLOWERS / 4, 90, every=0.5)
        elapsed = time.monotonic() - since
        looks, asked = _looks(worker) - looks, _commands(locks) - asked
        tasks.let_end(redis_client, "long")
        assert members.get(timeout=90) == [winner.get(timeout=60)] * FOLLOWERS
    assert len(journal.runs("long")) == 1
    most = PROCESSES / following.SPACING / 0.75
    assert looks / elapsed < most, "each process has its pace, however many there are"
    assert asked < looks / 3, "what one has seen the others believe for a moment"


def _looks(worker: Worker) -> int:
    return worker.log.count("] is put off behind job")


def _commands(client: redis.Redis) -> int:
    stats: Any = client.info("commandstats")
    return sum(
        int(stat["calls"]) for name, stat in stats.items() if name in ("cmdstat_evalsha", "cmdstat_eval")
    )
