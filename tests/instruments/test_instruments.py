"""Our header survives what tracing libraries lay around ``apply_async``, ``send_task`` and the publish."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest
import redis
from celery.result import AsyncResult

from django_jobdedup.header import HEADER, Header
from tests.dispatching.looking import locks, messages
from tests.rig.beat import Beat
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

NAME = "tests.jobs.tasks.until_executed"
#: App module to what it needs, and the headers that its tracer leaves.
APPS = {
    "sentry_app": ("sentry_sdk", {"sentry-task-enqueued-time"}),
    "otel_app": ("opentelemetry.instrumentation.celery", {"traceparent"}),
    "wrapping_app": ("celery", {"x-datadog-trace-id"}),
}


@pytest.fixture(params=APPS)
def instrumented(request: pytest.FixtureRequest) -> str:
    """The app module of one tracer; skipped where it is not installed (OpenTelemetry is a beta)."""
    needs = APPS[request.param][0]
    try:
        found = importlib.util.find_spec(needs)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{needs} is not installed for this Python")
    return str(request.param)


def called(world: Environment, module: str, key: str, queue: str) -> list[list[str]]:
    """Give what a sender in a process of its own says of its calls."""
    words = [sys.executable, "-W", "ignore", "-m", "tests.instruments.calls", module, key, queue]
    done = subprocess.run(
        words, env=world.for_process(), capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    said: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_every_way_of_sending_is_decided_once_and_carries_both_headers(
    world: Environment, redis_client: redis.Redis, instrumented: str, key: str
) -> None:
    said = called(world, instrumented, key, key)
    for way in ("apply_async", "send_task", "signature", "bulk", "headers"):
        (first, second) = [each for each in said if each[0] == way]
        assert [first[1], second[1]] == ["accepted", "suppressed"], way
        assert first[2] == second[2]
    sent = messages(redis_client, world.namespace, key)
    # Of each pair one; the retry, the first step, three members, two parts, the one that will give way.
    assert len(sent) == 5 + 2 + 3 + 2 + 1
    for message in sent:
        header = Header.decode(message["headers"][HEADER])
        assert header is not None
        assert header.id == message["headers"]["id"]
        assert header.locks
        assert APPS[instrumented][1] <= message["headers"].keys()
    assert [each["headers"].get("mine") for each in sent].count("1") == 1


@pytest.mark.worker
def test_retries_and_workflows_keep_the_lock_and_end_it(
    world: Environment,
    diary: Journal,
    redis_client: redis.Redis,
    tmp_path: Any,
    instrumented: str,
    key: str,
) -> None:
    before = set(locks(redis_client, world.namespace))
    with Worker(world, tmp_path, app=f"tests.instruments.{instrumented}", queues=[key]).wait_until_ready():
        said = called(world, instrumented, key, key)
        told = {way: (id, AsyncResult(id).get(timeout=20)) for way, _, id in said}
        assert [run.retries for run in diary.runs(f"{key}-retry")] == [0, 1]
        assert {run.id for run in diary.runs(f"{key}-retry")} == {told["retry"][0]}
        for number in range(3):
            assert len(diary.runs(f"{key}-step-{number}")) == 1
        # Equal members run once, and what follows them has the outcome of each.
        assert len(diary.runs(f"{key}-member")) == len(diary.runs(f"{key}-part")) == 1
        assert [told[f"group {number}"][1] for number in range(3)] == [f"{key}-member"] * 3
        assert told["chord"][1] == 2
        assert [run.id for run in diary.runs(f"{key}-replace-heir")] == [told["replace"][0]]
        assert told["replace"][1] == f"{key}-replace-heir"
        wait_for(lambda: set(locks(redis_client, world.namespace)) <= before, 10, what="nothing is left")


@pytest.mark.worker
def test_what_beat_sends_is_locked_as_well(
    world: Environment, redis_client: redis.Redis, tmp_path: Any, instrumented: str, key: str
) -> None:
    entry = {"task": NAME, "schedule": 0.3, "args": [key], "options": {"queue": key}}
    with Beat(
        world, tmp_path, {"often": entry}, app=f"tests.instruments.{instrumented}"
    ).wait_until_ready() as beat:
        wait_for(lambda: messages(redis_client, world.namespace, key), 15, what="the first message")
        wait_for(lambda: beat.log.count("Sending due task often") > 3, 15, what="more ticks")
    (message,) = messages(redis_client, world.namespace, key)
    header = Header.decode(message["headers"][HEADER])
    assert header is not None
    assert header.locks
    assert message["headers"]["celery_beat_task"] is True
