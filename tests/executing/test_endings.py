"""Every way in which a job can end, on one worker: afterwards the next call is accepted and runs (case U12).

All cases are played side by side, each on a key of its own, and each is judged by a test of its own.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from celery.exceptions import TimeoutError as CeleryTimeoutError
from kombu import Connection
from kombu.exceptions import EncodeError, OperationalError

from testproject.celery import app
from tests.rig.journal import Run
from tests.rig.waiting import wait_for

from . import tasks
from .conftest import Stage, call_until_accepted, new_key

# The story is told in the setup of the first test.
pytestmark = [pytest.mark.worker, pytest.mark.timeout(150)]

AT_ONCE = 2.0
"""Seconds within which the next call runs when no lease has to lapse."""

AFTER_A_LEASE = tasks.LEASE + 1.0
"""Seconds within which the next call runs when the holder could not say goodbye."""


@dataclass(frozen=True, slots=True)
class Case:
    """One ending. ``limit`` counts from the last sign of life of the last run of the first call."""

    name: str
    play: Callable[[Stage, str], Any]
    again: Callable[[str], Any]
    limit: float = AT_ONCE
    states: tuple[str, ...] = ("SUCCESS",)
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a case: the runs of the first call, and of the call after it."""

    state: str
    first: list[Run]
    second: list[Run]
    freed_after: float


CASES: list[Case] = []


def case(task: Any, how: str, **options: Any) -> None:
    """Add a case that needs no more than a call."""
    call = {
        name: options.pop(name) for name in ("seconds", "time_limit", "soft_time_limit") if name in options
    }
    seconds = call.pop("seconds", 0.0)
    limit_word = "hard" if "time_limit" in call else "soft" if "soft_time_limit" in call else ""
    short = task.name.rpartition(".")[2]
    name = options.pop("name", None) or f"{short}, {limit_word or how}"

    def play(stage: Stage, key: str) -> Any:
        return task.apply_async((key, how, seconds), **call)

    CASES.append(Case(name, play, task.delay, **options))


for each in (tasks.early, tasks.late):
    case(each, "succeed", seconds=0.3)
    case(each, "fail", seconds=0.3, states=("FAILURE",))
    case(each, "retry", seconds=0.2, states=("FAILURE",), attempts=2)
    case(each, "ignore", states=("PENDING", "STARTED"))
    case(each, "reject", states=("FAILURE", "PENDING"))
    case(each, "answer_an_object", states=("FAILURE",))
    case(each, "succeed", seconds=20, soft_time_limit=1, states=("FAILURE",))
    case(each, "succeed", seconds=20, time_limit=1, states=("FAILURE",))
    case(
        each,
        "stay",
        seconds=20,
        time_limit=1,
        states=("FAILURE",),
        name=f"{each.__name__}, hard, cleaning up",
    )
    case(each, "leave", states=("FAILURE",))
    # The main process hears of a lost child after worker_lost_wait, here a second.
    case(each, "vanish", states=("FAILURE",), limit=AFTER_A_LEASE)
    case(each, "replace", seconds=0.5, attempts=2)
case(tasks.early, "requeue", states=("PENDING", "STARTED"))
case(tasks.late, "requeue_once", attempts=2)
case(tasks.late_back_when_lost, "vanish_once", attempts=2)
case(tasks.retried_when_lost, "vanish_once", attempts=2)
case(tasks.retried_when_lost, "leave_once", attempts=2)
case(tasks.late_back_at_timeout, "succeed_once", seconds=20, time_limit=1, attempts=2)
case(tasks.late_back_at_timeout, "fail", states=("FAILURE",))


def add(name: str, task: Any, **options: Any) -> Callable[[Callable[[Stage, str], Any]], None]:
    """Add a case that is played by the decorated function."""

    def register(play: Callable[[Stage, str], Any]) -> None:
        CASES.append(Case(name, play, task.delay, **options))

    return register


for each in (tasks.early, tasks.late):

    @add(f"{each.__name__}, revoked while it waits", each, states=("REVOKED",), attempts=0)
    def _revoked_waiting(stage: Stage, key: str, task: Any = each) -> Any:
        result = task.apply_async((key,), queue=key)
        app.control.revoke(result.id)
        app.control.add_consumer(key, destination=[stage.worker.name], reply=True)
        return result

    @add(f"{each.__name__}, revoked before its eta", each, states=("REVOKED",), attempts=0)
    def _revoked_eta(stage: Stage, key: str, task: Any = each) -> Any:
        result = task.apply_async((key,), countdown=4)
        wait_for(lambda: result.id in stage.worker.log, 5)
        app.control.revoke(result.id)
        return result

    @add(f"{each.__name__}, expired", each, states=("REVOKED",), attempts=0)
    def _expired(stage: Stage, key: str, task: Any = each) -> Any:
        result = task.apply_async((key,), queue=key, expires=0.2)
        time.sleep(0.3)
        app.control.add_consumer(key, destination=[stage.worker.name], reply=True)
        return result

    @add(f"{each.__name__}, expired before its eta", each, states=("REVOKED",), attempts=0)
    def _expired_eta(stage: Stage, key: str, task: Any = each) -> Any:
        return task.apply_async((key,), countdown=2, expires=1)

    for how in ("succeed", "stay", "deaf"):

        @add(f"{each.__name__}, terminated, {how}", each, states=("REVOKED", "SUCCESS"))
        def _terminated(stage: Stage, key: str, task: Any = each, how: str = how) -> Any:
            result = task.delay(key, how, 20)
            wait_for(lambda: stage.runs(key), 10, every=0.1)
            time.sleep(0.3)
            app.control.revoke(result.id, terminate=True)
            return result


NOWHERE = f"{tasks.MODULE}.nowhere"


def _nowhere(key: str) -> Any:
    return app.send_task(NOWHERE, kwargs={"key": key})


CASES.append(
    Case("unknown task", lambda stage, key: _nowhere(key), _nowhere, states=("FAILURE",), attempts=0)
)


@add("content type not accepted", tasks.early, states=("PENDING",), attempts=0)
def _refused_content(stage: Stage, key: str) -> Any:
    return tasks.early.apply_async((key,), serializer="yaml")


@add("broken body", tasks.early, states=("PENDING",), attempts=0)
def _broken_body(stage: Stage, key: str) -> Any:
    """A message whose body cannot be read any more, with its headers intact."""
    result = tasks.early.apply_async((key,), queue=key)
    name = f"{stage.environment.namespace}:{key}"
    with redis.Redis.from_url(stage.environment.redis_url) as client:
        envelope = json.loads(client.rpop(name))
        client.lpush(name, json.dumps({**envelope, "body": base64.b64encode(b"{broken").decode()}))
    app.control.add_consumer(key, destination=[stage.worker.name], reply=True)
    return result


@add("publish failed", tasks.early, states=("PENDING",), attempts=0)
def _failed_publish(stage: Stage, key: str) -> Any:
    with (
        Connection("redis://127.0.0.1:1", transport_options={"max_retries": 1}) as nowhere,
        pytest.raises(OperationalError),
    ):
        tasks.early.apply_async((key,), connection=nowhere, retry=False)
    return app.AsyncResult("never-sent")


@add("argument that cannot be encoded", tasks.early, states=("PENDING",), attempts=0)
def _unencodable(stage: Stage, key: str) -> Any:
    with pytest.raises(EncodeError):
        tasks.early.apply_async((key, "succeed", {1j}))
    return app.AsyncResult("never-sent")


@pytest.fixture(scope="module")
def before(stage: Stage) -> tuple[str, ...]:
    """What other modules have left on the stage: locks that lapse by their TTL stay until a reaper comes."""
    return stage.lock_keys.remains().locks


@pytest.fixture(scope="module")
def played(stage: Stage, before: tuple[str, ...]) -> Iterator[dict[str, Future[Played]]]:
    """All cases, side by side."""
    with ThreadPoolExecutor(len(CASES)) as pool:
        yield {each.name: pool.submit(_play, stage, each) for each in CASES}


def _play(stage: Stage, case: Case) -> Played:
    key = new_key()
    first = case.play(stage, key)
    begun = time.monotonic()
    second = call_until_accepted(lambda: case.again(key), timeout=25, every=0.1)
    accepted = time.monotonic()
    if NOWHERE not in case.name and case.name != "unknown task":
        wait_for(lambda: [r for r in stage.runs(key) if r.id == second.id], 10, every=0.1)
    runs = stage.runs(key)
    of_first = [run for run in runs if run.id != second.id]
    end = max((run.seen for run in of_first), default=begun)
    with contextlib.suppress(CeleryTimeoutError):
        second.get(timeout=10, propagate=False)
    return Played(first.state, of_first, [run for run in runs if run.id == second.id], accepted - end)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_after_every_ending_the_next_call_is_accepted_and_runs(
    case: Case, played: dict[str, Future[Played]], stage: Stage
) -> None:
    seen = played[case.name].result()
    log = f"{seen}"
    assert len(seen.first) == case.attempts, log
    assert not any(run.overlaps(other) for run in seen.first for other in seen.second), log
    assert seen.state in case.states, log
    # A revoked or expired job goes when its turn comes: at most four seconds here.
    assert seen.freed_after < case.limit + (5 if case.attempts == 0 else 0), log
    if case.name != "unknown task":
        assert len(seen.second) == 1, log


def test_no_ending_leaves_a_lock_or_an_index_member(
    played: dict[str, Future[Played]], before: tuple[str, ...], stage: Stage
) -> None:
    for future in played.values():
        future.result()
    remains = stage.lock_keys.wait_until_empty(10, but=before)
    assert remains.eternal == ()
