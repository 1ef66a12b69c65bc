"""Leases: who renews what, who learns that a lock is lost, in every pool (case U14)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from django_jobdedup.executing.lease import RENEWALS, SLOWEST, LeaseKeeper
from django_jobdedup.executing.processes import is_alive, is_gone
from django_jobdedup.executing.reception import Delivery
from django_jobdedup.header import Header, Knobs
from testproject.celery import app
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.process import ROOT
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import tasks
from .conftest import IMPORTS, call_until_accepted
from .remains import LockKeys


def _delivery(lease: float) -> Delivery:
    return Delivery(Header("id", 0, (("f" * 64, Knobs(lease=lease)),)), "nonce", "task")


def test_a_short_lease_quickens_the_pace_even_after_a_long_silence() -> None:
    """The next round was planned for an idle worker; a lease that came since must not wait for it."""
    keeper = LeaseKeeper()
    assert keeper.due_in() > SLOWEST - 1
    keeper.look_after(_delivery(lease=1.5))
    assert keeper.due_in() <= 1.5 / RENEWALS


def test_a_long_lease_does_not_slow_a_short_one() -> None:
    keeper = LeaseKeeper()
    keeper.look_after(_delivery(lease=1.5))
    keeper.look_after(_delivery(lease=600))
    assert keeper.due_in() <= 1.5 / RENEWALS


def test_a_process_is_alive_until_it_has_ended_reaped_or_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert is_alive(child.pid)
        assert not is_gone(child.pid)
        child.kill()
        wait_for(lambda: is_gone(child.pid), 5, what="the end of the process")  # a zombie by now
        assert not is_alive(child.pid)
    finally:
        child.communicate()
    assert is_gone(child.pid)


@pytest.mark.parametrize(
    "pid", [None, os.getpid(), 2**31, 140_000_000_000_000], ids=["none", "own", "big", "greenlet"]
)
def test_what_is_no_process_of_a_pool_is_neither_alive_nor_gone(pid: int | None) -> None:
    assert not is_alive(pid)
    assert not is_gone(pid)


# Workers -------------------------------------------------------------------------------------------

DYING_SENDERS = """
import json, os, signal
from testproject.celery import app
from tests.executing import tasks

for call in json.loads({calls!r}):
    if not os.fork():
        tasks.early.apply_async(**call)
        os.kill(os.getpid(), signal.SIGKILL)  # before the confirm, which waits for some milliseconds
    assert os.wait()[1] == signal.SIGKILL
"""


@dataclass(slots=True)
class Story:
    """What happened, by the name of what was played."""

    journal: Journal
    lock_keys: LockKeys
    logs: dict[str, str] = field(default_factory=dict)
    played: dict[str, Future[Any]] = field(default_factory=dict)

    def seen(self, name: str) -> Any:
        """Give what came of a play, or raise what it raised."""
        return self.played[name].result()


@pytest.fixture(scope="module")
def story(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Play everything once, side by side, on workers of every kind."""
    environment = Environment(
        new_namespace(), redis_server.url, celery=IMPORTS, settings={"JOBDEDUP_CONFIRM_WITHIN": 2}
    )
    folder = tmp_path_factory.mktemp("lease")
    with environment.entered(app), ExitStack() as stack:
        kinds = {
            "solo": ("solo", 1), "threads": ("threads", 2), "prefork": ("prefork", 4), "busy": ("prefork", 1),
            "paused": ("prefork", 2), "next": ("prefork", 4),
        }  # fmt: skip
        workers = {
            queue: stack.enter_context(
                Worker(environment, folder, queues=[queue], pool=pool, concurrency=concurrency)
            )
            for queue, (pool, concurrency) in kinds.items()
        }
        for worker in workers.values():
            worker.wait_until_ready()
        journal = stack.enter_context(closing(Journal(environment.redis_url, environment.namespace)))
        lock_keys = stack.enter_context(closing(LockKeys(environment)))
        told = Story(journal, lock_keys)
        plays = {
            "solo": lambda: _refused_all_along(told, "solo"),
            "threads": lambda: _refused_all_along(told, "threads"),
            "lost": lambda: _lost_child(told),
            "survivor": lambda: _surviving(told),
            "slow end": lambda: _slow_end(told),
            "senders": lambda: _dead_senders(told, environment),
            "take over": lambda: _take_over(told, workers["paused"]),
        }
        with ThreadPoolExecutor(len(plays)) as pool:
            told.played = {name: pool.submit(play) for name, play in plays.items()}
            wait(told.played.values())
        told.logs = {queue: worker.log for queue, worker in workers.items()}
        yield told
    environment.clean()


def _refused_all_along(told: Story, queue: str) -> list[bool]:
    """Call a job again and again while it runs for three leases."""
    first = tasks.early.apply_async((queue, "succeed", 3.0 * tasks.LEASE), queue=queue)
    told.journal.wait_for_runs(1, queue)
    calls = []
    until = time.monotonic() + 3 * tasks.LEASE - 0.7
    while time.monotonic() < until:
        calls.append(tasks.early.apply_async((queue,), queue=queue).duplicate)
        time.sleep(0.1)
    first.get(timeout=10)
    return calls


def _lost_child(told: Story) -> float:
    """A pool process is killed; Celery looks for it ten seconds later only."""
    tasks.early.apply_async(("lost", "succeed", 60), queue="prefork")
    (run,) = told.journal.wait_for_runs(1, "lost")
    time.sleep(tasks.LEASE)
    os.kill(run.pid, signal.SIGKILL)
    killed = time.monotonic()
    call_until_accepted(lambda: tasks.early.apply_async(("lost",), queue="prefork"), timeout=15)
    return time.monotonic() - killed


def _surviving(told: Story) -> dict[str, float]:
    """A terminated body that works on, and a process that lives on."""
    seen = {}
    for task in (tasks.early, tasks.late):
        key = f"survivor-{task.__name__}"
        result = task.apply_async((key, "ignore_sigterm", 1 + 1.5 * tasks.LEASE), queue="prefork")
        told.journal.wait_for_runs(1, key)
        time.sleep(0.5)
        app.control.revoke(result.id, terminate=True)
        call_until_accepted(lambda: task.apply_async((key,), queue="prefork"), timeout=15)  # noqa: B023
        accepted = time.monotonic()
        run = told.journal.runs(task_id=result.id)[0]
        assert run.ended is not None, "accepted while it ran"
        seen[key] = accepted - run.ended
    return seen


def _slow_end(told: Story) -> list[Any]:
    """Hooks of the task take two leases after its body."""
    calls = [tasks.slow_to_end.apply_async((f"slow-{times}", times), queue="prefork") for times in (0, 1)]
    return [call.get(timeout=30) for call in calls]


def _dead_senders(told: Story, environment: Environment) -> dict[str, list[bool]]:
    """Senders are killed between publish and confirm; their messages wait in a worker."""
    calls = {
        # Keeps the only process of its worker busy.
        "busy": {"args": ["busy", "succeed", 6], "queue": "busy"},
        "eta": {"args": ["sender-eta"], "countdown": 6, "queue": "busy"},
        "prefetched": {"args": ["sender-prefetched"], "queue": "busy"},
        # Nobody receives this one.
        "queued": {"args": ["sender-queued"], "queue": "nobody"},
    }
    subprocess.run(
        [sys.executable, "-c", DYING_SENDERS.format(calls=json.dumps(list(calls.values())))],
        cwd=ROOT, env=environment.for_process(), check=True, timeout=30,
    )  # fmt: skip
    time.sleep(2.8)  # longer than JOBDEDUP_CONFIRM_WITHIN
    # The queue that somebody consumes: what is accepted now shall run.
    again = {name: tasks.early.apply_async(call["args"], queue="busy") for name, call in calls.items()}
    refused = {name: result.duplicate for name, result in again.items()}
    told.journal.wait_for_ends(1, "sender-eta", timeout=20)
    told.journal.wait_for_ends(1, "sender-prefetched", timeout=20)
    return refused


def _take_over(told: Story, paused: Worker) -> dict[str, Any]:
    """A paused worker renews nothing while its child runs; the next job takes its lock, a third waits."""
    jobs = {"early": tasks.looking_mutex, "late": tasks.looking_mutex_late}
    first = {name: task.apply_async((name, 6.0), queue="paused") for name, task in jobs.items()}
    for name in jobs:
        told.journal.wait_for_runs(1, name)
    time.sleep(0.6 * tasks.LEASE)  # renewed once: only then is a lost lease news
    paused.pause()
    second = {name: task.apply_async((name, 4.0), queue="next") for name, task in jobs.items()}
    for name in jobs:
        told.journal.wait_for_runs(2, name)
    third = {name: task.apply_async((name, 0.5), queue="next") for name, task in jobs.items()}
    time.sleep(0.5)
    paused.resume()
    return {name: [each[name].get(timeout=20) for each in (first, second, third)] for name in jobs}


pytestmark = pytest.mark.timeout(150)  # the story is told in the setup of the first test


@pytest.mark.worker
@pytest.mark.parametrize("queue", ["solo", "threads"])
def test_other_pools_renew_too(story: Story, queue: str) -> None:
    """A solo body keeps the main thread busy: the lease thread runs beside it."""
    calls = story.seen(queue)
    assert len(calls) > 20
    assert all(calls)
    assert len(story.journal.runs(queue)) == 1


@pytest.mark.worker
def test_the_lease_of_a_lost_process_lapses_before_celery_has_noticed(story: Story) -> None:
    assert story.seen("lost") < tasks.LEASE + 1


@pytest.mark.worker
@pytest.mark.parametrize("name", ["early", "late"])
def test_a_body_that_survives_its_termination_frees_the_key_at_its_end(story: Story, name: str) -> None:
    assert story.seen("survivor")[f"survivor-{name}"] < 2


@pytest.mark.worker
def test_a_slow_end_after_the_body_is_no_lost_lock(story: Story) -> None:
    assert story.seen("slow end") == [0, 1]
    assert "no longer holds lock" not in story.logs["prefork"]
    assert "taken again" not in story.logs["prefork"]


@pytest.mark.worker
@pytest.mark.parametrize("name", ["eta", "prefetched"])
def test_a_worker_confirms_what_it_has_received_for_a_dead_sender(story: Story, name: str) -> None:
    assert story.seen("senders")[name] is True
    assert len(story.journal.runs(f"sender-{name}")) == 1


@pytest.mark.worker
def test_what_no_worker_has_received_is_only_reserved_for_the_pending_time(story: Story) -> None:
    """The control of the test above: without a confirm the key would be free by then."""
    assert story.seen("senders")["queued"] is False


@pytest.mark.worker
@pytest.mark.parametrize("name", ["early", "late"])
def test_a_run_that_lost_its_lock_learns_it(story: Story, name: str) -> None:
    first, second, third = story.seen("take over")[name]
    assert (first["held"], first["check"], first["held_at_end"]) == (True, "LockLost", False)
    assert (second["check"], third["check"]) == (None, None)


@pytest.mark.worker
@pytest.mark.parametrize("name", ["early", "late"])
def test_fences_rise_from_the_loser_to_the_winner(story: Story, name: str) -> None:
    first, second, third = story.seen("take over")[name]
    assert first["fingerprint"] == second["fingerprint"] == third["fingerprint"]
    assert first["fence"] < second["fence"] < third["fence"]


@pytest.mark.worker
@pytest.mark.parametrize("name", ["early", "late"])
def test_the_release_of_a_loser_frees_nobody(story: Story, name: str) -> None:
    """The first ends while the second runs; the third waits for the second."""
    first, second, third = story.journal.runs(name)
    assert first.overlaps(second), "the first was paused longer than its lease"
    assert first.ended is not None
    assert second.ended is not None
    assert first.ended < second.ended
    assert third.started >= second.ended
    assert [run.how for run in (first, second, third)] == ["returned"] * 3


@pytest.mark.worker
@pytest.mark.parametrize("name", ["early", "late"])
def test_the_main_process_of_a_loser_logs_the_lost_lock_once(story: Story, name: str) -> None:
    id = story.seen("take over")[name][0]["token"]
    log = story.logs["paused"]
    lines = [line for line in log.splitlines() if f"job {id} no longer holds lock" in line]
    assert len([line for line in lines if "MainProcess" in line]) == 1
    assert len(lines) <= 2, "and its pool process at most once, at the end of the body"


@pytest.mark.worker
def test_nothing_is_left(story: Story) -> None:
    remains = story.lock_keys.wait_until_empty(10)
    assert remains.eternal == ()
