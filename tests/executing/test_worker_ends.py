"""A worker ends while it runs: warm, cold, killed; with early and late ack (cases U11 and U12).

Three victims live side by side, each on a queue of its own; one successor takes all queues over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest

from testproject.celery import app
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal, Run
from tests.rig.redelivery import FAST_REDELIVERY
from tests.rig.worker import Worker

from . import tasks
from .conftest import IMPORTS, call_until_accepted, swept
from .remains import LockKeys

# The story is told in the setup of the first test.
pytestmark = [pytest.mark.worker, pytest.mark.timeout(150)]

WAYS = ("term", "quit", "kill")
KINDS = {"early": tasks.early, "late": tasks.late}


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one job: its runs, those of the call after it, and when that call was accepted."""

    first: list[Run]
    second: list[Run]
    ended_at: float
    accepted_at: float

    @property
    def freed_after(self) -> float:
        """Seconds from the end of the worker."""
        return self.accepted_at - self.ended_at


@dataclass(frozen=True, slots=True)
class Story:
    """All that happened."""

    seen: dict[tuple[str, str], Seen]
    journal: Journal
    lock_keys: LockKeys


@pytest.fixture(scope="module")
def story(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Play it once."""
    celery = {**IMPORTS, "broker_transport_options": FAST_REDELIVERY}
    environment = Environment(new_namespace(), redis_server.url, celery=celery)
    folder = tmp_path_factory.mktemp("ends")
    with environment.entered(app), swept(), ExitStack() as stack:

        def start(*queues: str, concurrency: int) -> Worker:
            return stack.enter_context(Worker(environment, folder, queues=queues, concurrency=concurrency))

        pool = stack.enter_context(ThreadPoolExecutor(8))
        # The thread that starts a process must outlive it: see die_with_parent().
        victims = {way: start(way, concurrency=2) for way in WAYS}
        for victim in victims.values():
            victim.wait_until_ready()
        journal = stack.enter_context(closing(Journal(environment.redis_url, environment.namespace)))
        lock_keys = stack.enter_context(closing(LockKeys(environment)))
        firsts = {
            (way, kind): task.apply_async(
                (f"{way}-{kind}", "succeed_once", 3 if way == "term" else 30), queue=way
            )
            for way in WAYS
            for kind, task in KINDS.items()
        }
        journal.wait_for_runs(6)
        for way in WAYS:
            for name, countdown in (("prefetched", 0), ("eta", 8)):
                tasks.late.apply_async((f"{way}-{name}",), queue=way, countdown=countdown)
        time.sleep(tasks.LEASE)  # a lease renewed at least once
        ends = {way: time.monotonic() for way in WAYS}
        victims["term"].terminate()
        victims["quit"].quit()
        victims["kill"].kill()
        accepted = {place: pool.submit(_next_call, *place) for place in firsts}
        victims["quit"].wait()
        start(*WAYS, concurrency=6)
        results = {place: future.result() for place, future in accepted.items()}
        journal.wait_for_ends(1, "kill-eta", timeout=30)
        for result, _ in results.values():
            result.get(timeout=20)
        seen = {
            place: Seen(
                journal.runs(task_id=firsts[place].id), journal.runs(task_id=result.id), ends[place[0]], at
            )
            for place, (result, at) in results.items()
        }
        yield Story(seen, journal, lock_keys)
    environment.clean()


def _next_call(way: str, kind: str) -> tuple[Any, float]:
    result = call_until_accepted(
        lambda: KINDS[kind].apply_async((f"{way}-{kind}",), queue=way), timeout=30, every=0.1
    )
    return result, time.monotonic()


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_shutdown_lets_the_run_end_and_frees_the_key_with_it(story: Story, kind: str) -> None:
    seen = story.seen["term", kind]
    (run,) = seen.first
    assert run.how == "returned"
    assert run.ended is not None
    assert 0 <= seen.accepted_at - run.ended < 1


def test_a_cold_shutdown_frees_the_key_of_an_early_ack_at_once(story: Story) -> None:
    """Its message is gone, as the user chose."""
    seen = story.seen["quit", "early"]
    assert [run.how for run in seen.first] == ["SystemExit"]
    assert seen.freed_after < 2


@pytest.mark.parametrize("way", ["quit", "kill"])
def test_a_late_ack_keeps_the_key_for_its_redelivery(story: Story, way: str) -> None:
    seen = story.seen[way, "late"]
    cut_off, again = seen.first
    assert cut_off.how in (None, "SystemExit")
    assert again.how == "returned"
    assert again.ended is not None
    assert again.redelivered
    assert seen.accepted_at >= again.ended - 0.1, "the new call had to wait for the redelivery"


def test_a_killed_worker_frees_the_key_of_an_early_ack_after_one_lease(story: Story) -> None:
    """Refused while the lease lives, accepted within a second of its end; the TTL is an hour."""
    seen = story.seen["kill", "early"]
    assert len(seen.first) == 1
    # The last renewal was at most a third of the lease old.
    assert tasks.LEASE * 2 / 3 - 0.2 < seen.freed_after < tasks.LEASE + 1


@pytest.mark.parametrize("name", ["prefetched", "eta"])
@pytest.mark.parametrize("way", WAYS)
def test_what_the_worker_had_only_received_runs_once_elsewhere(story: Story, way: str, name: str) -> None:
    assert [run.how for run in story.journal.runs(f"{way}-{name}")] == ["returned"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_call_after_it_runs_once_and_never_beside_it(story: Story, way: str, kind: str) -> None:
    seen = story.seen[way, kind]
    assert [run.how for run in seen.second] == ["returned"]
    assert story.journal.overlaps(f"{way}-{kind}") == []


def test_no_lock_is_left_of_any_of_them(story: Story) -> None:
    assert story.lock_keys.wait_until_empty(10).eternal == ()
