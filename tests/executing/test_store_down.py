"""The lock store goes away while jobs run: they run on, and what they could not say is said later (case U46).

One story on a private lock server: paused for four seconds, then killed and started empty within a lease,
then emptied; later killed for longer than a lease.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from django.conf import settings

from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import tasks
from .conftest import IMPORTS, call_until_accepted
from .remains import LockKeys

# The story is told in the setup of the first test.
pytestmark = [pytest.mark.worker, pytest.mark.timeout(150)]

LEASE = 4.0
"""Seconds: longer than elsewhere, so that a server may be away for less than a lease."""

POLICY = {"lease": LEASE}


@dataclass(slots=True)
class Story:
    """What happened."""

    journal: Journal
    server: EmbeddedRedis
    ids: dict[str, str] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    log: str = ""


@pytest.fixture(scope="module")
def story(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Play it once."""
    with EmbeddedRedis() as server, ExitStack() as stack:
        caches = copy.deepcopy(settings.CACHES)
        caches["jobdedup"]["LOCATION"] = server.url
        environment = Environment(
            new_namespace(), redis_server.url, celery=IMPORTS, settings={"CACHES": caches}
        )
        stack.enter_context(environment.entered(app))
        folder = tmp_path_factory.mktemp("down")
        worker = stack.enter_context(Worker(environment, folder, concurrency=8)).wait_until_ready()
        journal = stack.enter_context(closing(Journal(environment.redis_url, environment.namespace)))
        told = Story(journal, server)
        _paused(told)
        _forgetful(told)
        _away(told)
        told.log = worker.log
        yield told
    environment.clean()


def _send(told: Story, name: str, task: Any, how: str, seconds: float, **options: Any) -> Any:
    result = task.apply_async((name, how, seconds), unique=POLICY, **options)
    told.ids[name] = result.id
    return result


def _freed(told: Story, name: str, task: Any, since: float) -> float:
    """Give the seconds until an equal call is accepted."""
    call_until_accepted(lambda: task.apply_async((name,), unique=POLICY), timeout=20)
    return time.monotonic() - since


def _paused(told: Story) -> None:
    """The server freezes for four seconds; it remembers everything."""
    long = [_send(told, f"long-{task.__name__}", task, "succeed", 10) for task in (tasks.early, tasks.late)]
    for task in (tasks.early, tasks.late):
        _send(told, f"short-{task.__name__}", task, "succeed", 3)
        _send(told, f"starts-{task.__name__}", task, "succeed", 0.2, countdown=3)
        _send(told, f"revoked-{task.__name__}", task, "succeed", 0.2, countdown=3)
    told.journal.wait_for_runs(4)
    time.sleep(1.5)  # confirmed, and leases renewed
    for name in ("revoked-early", "revoked-late"):
        app.control.revoke(told.ids[name])
    told.server.pause()
    told.at["paused"] = time.monotonic()
    told.journal.wait_for_ends(1, "starts-early")
    told.journal.wait_for_ends(1, "starts-late")
    time.sleep(max(0.0, told.at["paused"] + 4 - time.monotonic()))
    told.server.resume()
    resumed = time.monotonic()
    time.sleep(0.3)
    told.seen["during"] = [
        tasks.early.apply_async(("long-early",), unique=POLICY).duplicate,
        tasks.late.apply_async(("long-late",), unique=POLICY).duplicate,
    ]
    with ThreadPoolExecutor(8) as pool:
        waits = {
            f"{word}-{task.__name__}": pool.submit(_freed, told, f"{word}-{task.__name__}", task, resumed)
            for word in ("short", "starts", "revoked")
            for task in (tasks.early, tasks.late)
        }
        told.seen["freed"] = {name: wait.result() for name, wait in waits.items()}
    for result in long:
        result.get(timeout=20)
    told.seen["long freed"] = [
        _freed(told, f"long-{task.__name__}", task, _end(told, f"long-{task.__name__}"))
        for task in (tasks.early, tasks.late)
    ]


def _end(told: Story, name: str) -> float:
    return max(run.ended or 0.0 for run in told.journal.runs(name))


def _forgetful(told: Story) -> None:
    """The server is killed and starts empty, away for less than a lease; then somebody empties it."""
    jobs = {f"forgotten-{task.__name__}": task for task in (tasks.early, tasks.late)}
    results = [_send(told, name, task, "succeed", 15) for name, task in jobs.items()]
    for name in jobs:
        told.journal.wait_for_runs(1, name)
    time.sleep(LEASE / 2)
    told.server.stop()
    time.sleep(0.5)
    told.server.start()
    time.sleep(LEASE)
    told.seen["after restart"] = [
        task.apply_async((name,), unique=POLICY).duplicate for name, task in jobs.items()
    ]
    with redis.Redis.from_url(told.server.url) as client:
        client.flushdb()  # a server of this story alone
    time.sleep(LEASE)
    told.seen["after flush"] = [
        task.apply_async((name,), unique=POLICY).duplicate for name, task in jobs.items()
    ]
    for result in results:
        result.get(timeout=20)
    told.seen["forgotten freed"] = [_freed(told, name, task, _end(told, name)) for name, task in jobs.items()]


def _away(told: Story) -> None:
    """The server is away for longer than a lease and comes back empty."""
    result = tasks.looking.apply_async(("away", 9.0), unique={"lease": 2})
    told.ids["away"] = result.id
    told.journal.wait_for_runs(1, "away")
    time.sleep(1.0)
    told.server.stop()
    time.sleep(5.0)
    told.server.start()
    told.seen["away"] = result.get(timeout=20)
    with closing(LockKeys(_of(told))) as keys:
        told.seen["left"] = keys.wait_until_empty(10)


def _of(told: Story) -> Environment:
    return Environment(settings.TEST_NAMESPACE, told.server.url)


@pytest.mark.parametrize("name", ["long-early", "long-late", "short-early", "short-late"])
def test_a_run_goes_on_while_the_store_is_away(story: Story, name: str) -> None:
    runs = [run for run in story.journal.runs(name) if run.id == story.ids[name]]
    assert [run.how for run in runs] == ["returned"]


def test_a_lease_that_lapsed_while_the_store_was_frozen_is_renewed(story: Story) -> None:
    assert story.seen["during"] == [True, True]
    assert all(freed < 1 for freed in story.seen["long freed"])


@pytest.mark.parametrize("name", ["starts-early", "starts-late"])
def test_a_job_starts_without_its_lock_and_not_later_than_the_timeout(story: Story, name: str) -> None:
    """Due a second and a half after the pause; the store's timeout is a second."""
    run = story.journal.runs(name)[0]
    assert run.id == story.ids[name]
    assert run.started - story.at["paused"] < 1.5 + 1 + 1


@pytest.mark.parametrize("word", ["short", "starts", "revoked"])
@pytest.mark.parametrize("kind", ["early", "late"])
def test_an_end_that_the_store_did_not_hear_is_made_up_later(story: Story, word: str, kind: str) -> None:
    """Of a run with a lock, of a run without one, of a job that was revoked: tried again once a second."""
    assert story.seen["freed"][f"{word}-{kind}"] < 3.5


def test_a_forgotten_lock_is_taken_again_by_the_job_that_runs(story: Story) -> None:
    assert story.seen["after restart"] == [True, True]
    assert story.seen["after flush"] == [True, True]
    assert all(freed < 1 for freed in story.seen["forgotten freed"])
    for name in ("forgotten-early", "forgotten-late"):
        lines = [line for line in story.log.splitlines() if "taken again" in line]
        assert sum(story.ids[name] in line for line in lines) == 2


def test_after_a_lapse_the_lock_is_learnt_to_be_lost(story: Story) -> None:
    """Somebody may have run meanwhile, for all this job knows."""
    away = story.seen["away"]
    assert (away["held"], away["check"]) == (True, "LockLost")
    assert f"job {story.ids['away']} no longer holds lock" in story.log


def test_no_lock_is_left_after_all(story: Story) -> None:
    assert story.seen["left"].eternal == ()


def test_the_worker_says_that_the_store_is_away(story: Story) -> None:
    assert "lock store 'default' is unavailable" in story.log
    assert "internal error" not in story.log
