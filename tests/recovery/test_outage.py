"""A broker that refuses for ten seconds: no request waits, and everything runs afterwards (case U30)."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from django_jobdedup.recovery.relay import back_off
from testproject.celery import app
from tests.conftest import StartWorker
from tests.dispatching.durable.conftest import Base
from tests.jobs import tasks
from tests.rig.engines import Engine
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for

from . import command
from .outage import Wire, broker_at

LASTS = 10.0
PAUSE = 0.05
"""Seconds between two requests."""


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.timeout(120)
def test_no_request_waits_and_everything_runs(
    postgresql_engine: Engine,
    celery_env: Environment,
    settings: Any,
    redis_client: redis.Redis,
    worker: StartWorker,
    journal: Journal,
) -> None:
    settings.JOBDEDUP_STORES = postgresql_engine.stores
    back_off.over()
    base = Base(postgresql_engine, celery_env, redis_client)
    world = celery_env.having(settings=postgresql_engine.settings_as_default)
    worker(world, concurrency=4)
    where = urlsplit(celery_env.redis_url)
    assert where.port
    wire = Wire(where.port)
    url = f"redis://127.0.0.1:{wire.port}{where.path}"
    relay = command.start(
        world.having(celery={"broker_url": url}), "maintain", "--loop", "--only", "relay", "--json"
    )
    try:
        with broker_at(app, url):
            before = tasks.until_executed.delay("before").id
            wire.cut()
            asked = ask(base)
            wire.mend()
            after = tasks.until_executed.delay("after").id
        ids = {before, after, *asked}
        wait_for(lambda: set(base.states()) == {"done"}, 60, what=lambda: f"{Counter(base.states())}")
    finally:
        relay.terminate()
        out, err = relay.communicate(timeout=20)
        wire.cut()

    # A request that waits for a connection takes seconds; these took their pauses and little more.
    assert len(asked) > LASTS / PAUSE / 3
    assert Counter(run.id for run in journal.runs()) == dict.fromkeys(ids, 1)
    said = command.lines(out)
    assert relay.returncode == 0, err
    assert sum(line.get("published", 0) for line in said) >= len(asked)
    assert [line for line in said if "failed" in line or "dead" in line] == []


def ask(base: Base) -> list[str]:
    """Make calls for ten seconds, in a transaction and without one; give their ids."""
    ids = []
    until = time.monotonic() + LASTS
    while time.monotonic() < until:
        if len(ids) % 2:
            with base.atomic():
                ids.append(tasks.until_executed.delay(f"k{len(ids)}").id)
        else:
            ids.append(tasks.until_executed.delay(f"k{len(ids)}").id)
        time.sleep(PAUSE)
    return ids
