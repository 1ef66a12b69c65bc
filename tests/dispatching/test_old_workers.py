"""Workers that have not been deployed yet: without the app they run what they get, and free nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import chord
from django.conf import settings
from django.test import override_settings

from django_jobdedup import peek
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.recovery.freeing import free
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.results import Doubt
from tests.canvas import tasks as canvas
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from .looking import locks, messages

pytestmark = pytest.mark.worker

QUEUE = "old"
HERE = {"queue": QUEUE}


@pytest.fixture(scope="module")
def before(world: Environment) -> Environment:
    """The world as those see it who run the code of before."""
    apps = [name for name in settings.INSTALLED_APPS if name != "django_jobdedup"]
    return world.having(celery={"imports": [canvas.MODULE]}, settings={"INSTALLED_APPS": apps})


@pytest.fixture(scope="module")
def old(before: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker of before, alone on its queue."""
    with Worker(before, tmp_path_factory.mktemp("old"), concurrency=4, queues=[QUEUE]) as worker:
        yield worker.wait_until_ready()


def test_web_first_locks_nothing_and_every_call_runs(
    world: Environment, old: Worker, diary: Journal, redis_client: redis.Redis, key: str
) -> None:
    held = set(locks(redis_client, world.namespace))
    with override_settings(JOBDEDUP_REQUIRE_WORKER=True):
        done = [tasks.until_executed.apply_async((key,), **HERE) for _ in range(2)]
        done += [tasks.while_executing.apply_async((key,), **HERE)]
    assert [str(each.outcome) for each in done] == ["observed", "observed", "accepted"]
    assert [each.get(timeout=15) for each in done] == [key] * 3
    assert {run.id for run in diary.runs(key)} == {each.id for each in done}
    confirmer.flush()
    assert set(locks(redis_client, world.namespace)) == held
    assert "django_jobdedup" not in old.log


def test_a_lock_that_it_does_not_free_is_freed_when_its_message_is_found_nowhere(
    world: Environment, old: Worker, key: str
) -> None:
    """Some workers are deployed and one is not: what the install page warns of. The result stays."""
    done = tasks.until_executed.apply_async((key,), **HERE)
    assert done.get(timeout=15) == key
    assert tasks.until_executed.apply_async((key,), **HERE).id == done.id
    (record,) = [record for record in _records() if record.ref.fingerprint == done.fingerprint]
    assert free([(stores["default"], Doubt(record.ref, record.name, record.holders[0]))], 0.1) == {"freed": 1}
    assert done.get(timeout=5) == key
    again = tasks.until_executed.apply_async((key,), **HERE)
    assert again.outcome == "accepted"
    assert again.get(timeout=15) == key


def _records() -> list[Any]:
    confirmer.flush()
    store = stores["default"]
    return [record for shard in range(store.shards) for record in store.list_locks(shard, limit=10_000)]  # type: ignore[union-attr]


@pytest.mark.parametrize("task", [canvas.follow, canvas.mark], ids=["follow", "mark"])
def test_a_promised_duplicate_runs_its_body_so_no_chord_hangs(
    old: Worker, diary: Journal, key: str, task: Any
) -> None:
    member = task.si(key, 0.1).set(**HERE)
    done = chord([member, member.clone()], canvas.total.s(f"{key}-body").set(**HERE)).apply_async()
    assert len(done.get(timeout=20)) == 2
    assert len(diary.runs(key)) == 2
    assert len(diary.runs(f"{key}-body")) == 1


def test_a_retry_that_it_has_published_keeps_the_lock_for_a_worker_of_now(
    world: Environment,
    before: Environment,
    diary: Journal,
    redis_client: redis.Redis,
    tmp_path: Path,
    key: str,
) -> None:
    with Worker(before, tmp_path, queues=[key]).wait_until_ready() as old:
        done = tasks.retrying.apply_async((key, 1, 3.0), queue=key)
        wait_for(lambda: "Retry in 3" in old.log, 10, what="the retry")
        old.terminate()
        old.wait()
    (message,) = messages(redis_client, world.namespace, key)
    assert message["headers"]["retries"] == 1
    assert tasks.retrying.apply_async((key, 1, 3.0), queue=key).id == done.id
    with Worker(world, tmp_path, queues=[key]).wait_until_ready():
        assert done.get(timeout=15) == 1
        wait_for(lambda: peek(tasks.retrying, key) is None, 10, what="a free key")
    assert [run.retries for run in diary.runs(key)] == [0, 1]
