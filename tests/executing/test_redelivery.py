"""The broker delivers a message again while its first copy waits or runs (cases U01 and U02).

The visibility timeout is 3 s, so everything here outlives it. All stories run side by side in one world,
on queues of their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from testproject.celery import app
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.redelivery import FAST_REDELIVERY
from tests.rig.worker import Worker

from . import tasks
from .conftest import IMPORTS, swept
from .remains import LockKeys

# The story is told in the setup of the first test.
pytestmark = [pytest.mark.worker, pytest.mark.timeout(150)]

LONG = 8.0
"""Seconds of a long run: more than twice the visibility timeout."""

FAR = 9.0
"""Countdown of a far job: three visibility timeouts."""


@dataclass(slots=True)
class Story:
    """What happened."""

    journal: Journal
    lock_keys: LockKeys
    ids: dict[str, str] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    killed_at: float = 0.0
    refusals: int = 0
    accepted: int = 0


@pytest.fixture(scope="module")
def story(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Play everything once, side by side."""
    celery = {**IMPORTS, "broker_transport_options": FAST_REDELIVERY}
    environment = Environment(new_namespace(), redis_server.url, celery=celery)
    folder = tmp_path_factory.mktemp("redelivery")
    with environment.entered(app), swept(), ExitStack() as stack:

        def start(*queues: str, concurrency: int) -> Worker:
            return stack.enter_context(Worker(environment, folder, queues=queues, concurrency=concurrency))

        workers = [
            start("one", concurrency=6),
            start("two", concurrency=3),
            start("two", concurrency=3),
            start("three", concurrency=1),
        ]
        doomed = [start("four", concurrency=1), start("four", concurrency=1)]
        for worker in (*workers, *doomed):
            worker.wait_until_ready()
        journal = stack.enter_context(closing(Journal(environment.redis_url, environment.namespace)))
        lock_keys = stack.enter_context(closing(LockKeys(environment)))
        told = Story(journal, lock_keys)

        def send(name: str, task: Any, queue: str, *args: Any, **options: Any) -> None:
            told.ids[name] = task.apply_async((name, *args), queue=queue, **options).id

        send("eta", tasks.early, "one", countdown=FAR)
        send("eta-late", tasks.late, "one", countdown=FAR)
        send("eta-retry", tasks.chained_attempts, "one", 1, FAR)
        send("eta-two-workers", tasks.early, "two", countdown=FAR)
        send("long", tasks.late, "two", "succeed", LONG)
        send("long-mutex", tasks.mutex_late, "two", LONG)
        send("lease", tasks.early, "one", "succeed", 5 * tasks.LEASE)
        for number in range(3):
            send(f"prefetched-{number}", tasks.mutex_late, "three", 4.0)
        send("killed", tasks.mutex_late, "four", LONG)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_kill, told, doomed)
            _call_again_and_again(told)
        journal.wait_for_ends(1, "prefetched-2", timeout=20)
        journal.wait_for_ends(1, "killed", timeout=20)
        journal.wait_for_ends(2, "eta-retry", timeout=20)
        time.sleep(2)  # a copy too many would start by now
        logs = "".join(worker.log for worker in workers)
        told.received = {name: logs.count(f"[{id}] received") for name, id in told.ids.items()}
        yield told
    environment.clean()


def _kill(told: Story, doomed: list[Worker]) -> None:
    """Kill the worker that runs "killed" five seconds into its run."""
    (run,) = told.journal.wait_for_runs(1, "killed")
    time.sleep(max(0.0, run.started + 5 - time.monotonic()))
    next(worker for worker in doomed if run.pid in worker.children()).kill()
    told.killed_at = time.monotonic()


def _call_again_and_again(told: Story) -> None:
    """Call the job that outlives its lease while it runs."""
    told.journal.wait_for_runs(1, "lease")
    until = time.monotonic() + 5 * tasks.LEASE - 1
    while time.monotonic() < until:
        result = tasks.early.apply_async(("lease",), queue="one")
        told.refusals, told.accepted = (
            told.refusals + result.duplicate,
            told.accepted + (not result.duplicate),
        )
        time.sleep(0.1)


@pytest.mark.parametrize("name", ["eta", "eta-late", "eta-two-workers"])
def test_a_far_eta_is_delivered_often_and_runs_once(story: Story, name: str) -> None:
    assert story.received[name] >= 3, "the broker has copied it"
    assert [run.how for run in story.journal.runs(name)] == ["returned"]


def test_a_far_retry_runs_once(story: Story) -> None:
    assert story.received["eta-retry"] >= 4
    assert [run.retries for run in story.journal.runs("eta-retry")] == [0, 1]


@pytest.mark.parametrize("name", ["long", "long-mutex"])
def test_a_late_ack_run_longer_than_the_visibility_timeout_is_alone_and_ends_once(
    story: Story, name: str
) -> None:
    assert story.received[name] >= 2, "the broker has copied it"
    assert [run.how for run in story.journal.runs(name)] == ["returned"]


def test_what_waits_prefetched_behind_long_runs_runs_once(story: Story) -> None:
    for number in range(3):
        assert [run.how for run in story.journal.runs(f"prefetched-{number}")] == ["returned"]
    assert story.received["prefetched-2"] >= 2, "the broker has copied it"


def test_when_the_first_worker_dies_a_copy_takes_over_within_a_lease_and_completes(story: Story) -> None:
    cut_off, again = story.journal.runs("killed")
    assert cut_off.ended is None
    assert again.how == "returned"
    # A copy that was put off sleeps at most a third of the visibility timeout.
    assert again.started - story.killed_at < tasks.LEASE + 1.5
    assert story.journal.overlaps("killed") == []


def test_a_run_five_times_longer_than_its_lease_is_never_overlapped(story: Story) -> None:
    assert story.refusals > 50
    assert story.accepted == 0
    assert len(story.journal.runs("lease")) == 1


def test_the_keys_are_free_afterwards(story: Story) -> None:
    assert story.lock_keys.wait_until_empty(5).eternal == ()
