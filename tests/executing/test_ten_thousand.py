"""Ten thousand unique jobs run to the end: nothing is left but counters, and nothing is without an expiry."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis

from testproject.celery import app
from tests.rig.environment import Environment, new_namespace
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import tasks
from .conftest import IMPORTS
from .remains import LockKeys

NUMBER = 10_000


@pytest.mark.worker
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_ten_thousand_jobs_leave_only_what_expires(redis_server: Any, tmp_path: Path) -> None:
    environment = Environment(
        new_namespace(), redis_server.url, celery={**IMPORTS, "task_ignore_result": True}
    )
    with environment.entered(app), ExitStack() as stack:
        lock_keys = stack.enter_context(closing(LockKeys(environment)))
        client = stack.enter_context(redis.Redis.from_url(environment.redis_url, decode_responses=True))
        worker = Worker(environment, tmp_path, pool="solo", options=["--loglevel", "WARNING"])
        worker.ready_line = ""
        stack.enter_context(worker)
        seen: set[str] = set()
        eternal: set[str] = set()
        over = threading.Event()

        def watch() -> None:
            with closing(LockKeys(environment)) as keys:
                while not over.wait(2.0):
                    remains = keys.remains()
                    seen.update(remains.locks)
                    eternal.update(remains.eternal)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            outcomes = [tasks.quick.delay(f"job-{number}").outcome for number in range(NUMBER)]
            wait_for(lambda: _waiting(client, environment) == 0, 60, every=0.3, what="the end of all jobs")
            remains = lock_keys.wait_until_empty(5)
        finally:
            over.set()
            watcher.join()
        assert outcomes == ["accepted"] * NUMBER
        assert eternal == set()
        assert seen, "the watcher has seen locks"
        kinds = {_kind(key) for key in remains.others}
        assert kinds <= {"mark", "counters", "fence", "worker"}
        assert _counted(client, environment, "released") == NUMBER
        assert _counted(client, environment, "claimed") == NUMBER
    environment.clean()


def _waiting(client: redis.Redis, environment: Environment) -> int:
    queued = client.llen(f"{environment.namespace}:celery")
    unacked = client.hlen(f"{environment.namespace}:unacked")
    return int(queued) + int(unacked)  # type: ignore[arg-type]


def _kind(key: str) -> str:
    return next(part for part in key.split(":1:", 1)[1].split(":") if part)


def _counted(client: redis.Redis, environment: Environment, what: str) -> int:
    total = 0
    for key in client.scan_iter(match=f"*{environment.namespace}:*:counters", count=1000):
        fields: dict[str, str] = client.hgetall(key)  # type: ignore[assignment]
        total += sum(int(number) for field, number in fields.items() if field.endswith(f"\x1f{what}"))
    return total
