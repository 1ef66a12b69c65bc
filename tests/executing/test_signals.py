"""The signals of the executing side: which, with what, in which process; receivers that raise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import redis

from django_jobdedup import Unique
from django_jobdedup.conf import conf
from django_jobdedup.fingerprint.digest import shard_of
from django_jobdedup.header import HEADER, Header
from django_jobdedup.policies.resolve import policy_of
from testproject.celery import app
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import noting, tasks
from .conftest import new_key, send_raw

pytestmark = pytest.mark.worker


class Scene:
    """A worker whose receivers note what they hear, and others that raise before them."""

    def __init__(self, environment: Environment, worker: Worker, journal: Journal) -> None:
        self.worker, self.journal = worker, journal
        self._client = redis.Redis.from_url(environment.redis_url, decode_responses=True)
        self._list = f"{environment.namespace}:signals"

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def heard(self, id: str, signal: str) -> list[dict[str, Any]]:
        """Give what was noted of an id."""
        lines = [json.loads(line) for line in self._client.lrange(self._list, 0, -1)]
        return [line for line in lines if line["signal"] == signal and line.get("id") == id]

    def wait(self, id: str, signal: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for a number of notes."""
        wait_for(lambda: len(self.heard(id, signal)) >= count, 10, every=0.1, what=f"{signal} of {id}")
        return self.heard(id, signal)

    def is_main(self, line: dict[str, Any]) -> bool:
        """Whether it was noted in the worker's main process."""
        return line["pid"] == self.worker.pid


@pytest.fixture(scope="module")
def scene(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Start the worker."""
    environment = Environment(
        new_namespace(),
        redis_server.url,
        celery={"imports": [tasks.MODULE, noting.MODULE], "worker_lost_wait": 1.0},
        settings={"JOBDEDUP_TASKS": {f"{tasks.MODULE}.nowhere": {"unique": tasks.declared()}}},
        variables={"TEST_NOTING": "1"},
    )
    with environment.entered(app), ExitStack() as stack:
        worker = stack.enter_context(Worker(environment, tmp_path_factory.mktemp("signals"), concurrency=4))
        worker.wait_until_ready()
        journal = stack.enter_context(closing(Journal(environment.redis_url, environment.namespace)))
        yield stack.enter_context(closing(Scene(environment, worker, journal)))
    environment.clean()


def test_a_receiver_that_raises_is_logged_and_breaks_nothing(scene: Scene) -> None:
    """Every receiver of this scene stands behind one that raises."""
    key = new_key()
    assert tasks.early.delay(key).get(timeout=10) == key
    assert "a receiver of the user" in scene.worker.log
    assert tasks.early.delay(key).get(timeout=10) == key, "the key is free"


def test_a_start_is_told_in_the_process_of_the_pool_with_the_task_as_sender(scene: Scene) -> None:
    result = tasks.early.delay(new_key())
    result.get(timeout=10)
    (line,) = scene.wait(result.id, "execution_decided")
    assert line["decision"] == "run"
    assert (line["sender"], line["task"]) == (tasks.early.name, tasks.early.name)
    assert not scene.is_main(line)


def test_put_off_and_run_are_told_with_who_stood_in_the_way(scene: Scene) -> None:
    key = new_key()
    first = tasks.mutex.delay(key, 0.8)
    scene.journal.wait_for_runs(1, key)
    second = tasks.mutex.delay(key)
    second.get(timeout=10)
    *put_off, last = scene.heard(second.id, "execution_decided")
    assert {(line["decision"], line["by"]) for line in put_off} == {("put_off", first.id)}
    assert (last["decision"], last["by"]) == ("run", "")


def test_suppressed_is_told(scene: Scene) -> None:
    key = new_key()
    first = tasks.skipping.delay(key, 0.8)
    scene.journal.wait_for_runs(1, key)
    second = tasks.skipping.delay(key)
    second.get(timeout=10)
    (line,) = scene.wait(second.id, "execution_decided")
    assert (line["decision"], line["by"]) == ("suppressed", first.id)


def test_done_is_told_for_a_late_copy_of_a_message(scene: Scene) -> None:
    key, name = new_key(), tasks.early.name
    first = tasks.early.delay(key)
    scene.wait(first.id, "lock_released")
    policy = policy_of(name, tasks.early.unique)
    assert isinstance(policy, Unique)
    header = Header(first.id, shard_of(name, conf.SHARDS), ((first.fingerprint, policy.knobs(name)),))
    send_raw(name, key, task_id=first.id, headers={HEADER: header.encode()})
    lines = scene.wait(first.id, "execution_decided", 2)
    assert [line["decision"] for line in lines] == ["run", "done"]


REASONS: dict[str, tuple[Callable[[str], Any], str, bool]] = {
    "success": (tasks.early.delay, "success", False),
    "failure": (lambda key: tasks.early.delay(key, "fail"), "failure", False),
    "ignore": (lambda key: tasks.early.delay(key, "ignore"), "ignore", False),
    "reject": (lambda key: tasks.early.delay(key, "reject"), "reject", False),
    "exit": (lambda key: tasks.early.delay(key, "leave"), "exit", False),
    "hard limit": (lambda key: tasks.late.apply_async((key, "succeed", 20), time_limit=1), "timeout", True),
    "lost": (lambda key: tasks.late.delay(key, "vanish"), "lost", True),
    "expired": (lambda key: tasks.early.apply_async((key,), countdown=0.5, expires=0.2), "expired", True),
    "unknown": (lambda key: app.send_task(f"{tasks.MODULE}.nowhere", kwargs={"key": key}), "unknown", True),
    "refused": (lambda key: tasks.early.apply_async((key,), serializer="yaml"), "rejected", True),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_release_is_told_with_its_reason_where_it_was_seen(scene: Scene, name: str) -> None:
    call, reason, in_main = REASONS[name]
    result = call(new_key())
    line = scene.wait(result.id, "lock_released")[0]
    assert (line["reason"], scene.is_main(line)) == (reason, in_main)


def test_revoked_and_terminated_are_told_by_the_main_process(scene: Scene) -> None:
    waiting = tasks.early.apply_async((new_key(),), countdown=1.5)
    key = new_key()
    running = tasks.late.delay(key, "succeed", 20)
    scene.journal.wait_for_runs(1, key)
    app.control.revoke(waiting.id)
    app.control.revoke(running.id, terminate=True)
    for result, reason in ((waiting, "revoked"), (running, "terminated")):
        line = scene.wait(result.id, "lock_released")[0]
        assert (line["reason"], scene.is_main(line)) == (reason, True)


def test_a_retry_releases_once_at_its_end(scene: Scene) -> None:
    result = tasks.chained_attempts.delay(new_key(), 2, 0.1)
    result.get(timeout=10)
    time.sleep(0.2)
    assert [line["decision"] for line in scene.heard(result.id, "execution_decided")] == ["run"] * 3
    assert [line["reason"] for line in scene.heard(result.id, "lock_released")] == ["success"]


def test_a_lock_kept_beyond_its_end_is_not_told_as_released(scene: Scene) -> None:
    result = tasks.once_in_three.delay(new_key())
    result.get(timeout=10)
    time.sleep(0.3)
    assert scene.heard(result.id, "lock_released") == []


def test_no_lock_was_lost_in_all_this(scene: Scene) -> None:
    assert "no longer holds lock" not in scene.worker.log
    assert "internal error" not in scene.worker.log
