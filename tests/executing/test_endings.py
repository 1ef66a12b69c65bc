"""Odd ways to end, in prefork: the next call is accepted and runs; ``endings/`` has the plain ones.

All cases are played side by side, each on a key of its own, and each is judged by a test of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
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
"""Seconds within which the next call is accepted."""


@dataclass(frozen=True, slots=True)
class Case:
    """One ending."""

    name: str
    play: Callable[[Stage, str], Any]
    again: Callable[[str], Any]
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
    name = f"{task.name.rpartition('.')[2]}, {how}"
    CASES.append(Case(name, lambda stage, key: task.delay(key, how), task.delay, **options))


case(tasks.retried_when_lost, "leave_once", attempts=2)
case(tasks.late_back_at_timeout, "fail", states=("FAILURE",))


def add(name: str, task: Any, **options: Any) -> Callable[[Callable[[Stage, str], Any]], None]:
    """Add a case that is played by the decorated function."""

    def register(play: Callable[[Stage, str], Any]) -> None:
        CASES.append(Case(name, play, task.delay, **options))

    return register


for each in (tasks.early, tasks.late):

    @add(f"{each.__name__}, terminated, deaf", each, states=("REVOKED", "SUCCESS"))
    def _terminated(stage: Stage, key: str, task: Any = each) -> Any:
        result = task.delay(key, "deaf", 20)
        wait_for(lambda: stage.runs(key), 10, every=0.1)
        time.sleep(0.3)
        app.control.revoke(result.id, terminate=True)
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
    assert seen.freed_after < AT_ONCE, log
    assert len(seen.second) == 1, log


def test_no_ending_leaves_a_lock_or_an_index_member(
    played: dict[str, Future[Played]], before: tuple[str, ...], stage: Stage
) -> None:
    for future in played.values():
        future.result()
    remains = stage.lock_keys.wait_until_empty(10, but=before)
    assert remains.eternal == ()
