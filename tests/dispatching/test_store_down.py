"""A lock store that does not answer: dispatches go on, quickly, or are refused, as the policy says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import redis
from django.conf import settings
from django.test import override_settings

from django_jobdedup import StoreUnavailable
from django_jobdedup.conf import conf
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.fingerprint.digest import shard_of
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record, Ref
from testproject.embedded_redis import EmbeddedRedis
from tests.conftest import StartWorker
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for

from .looking import ids, state

RAISE = {"on_store_error": "raise"}
#: The alias of the tests waits a second for an answer; a busy machine needs some more.
TIMEOUT = 2.0


@pytest.fixture
def down(celery_env: Environment, lock_server: EmbeddedRedis) -> Iterator[EmbeddedRedis]:
    """The locks of this test live on a server of their own, which it may stop; the broker lives on."""
    caches = deepcopy(settings.CACHES)
    caches["jobdedup"]["LOCATION"] = lock_server.url
    with override_settings(CACHES=caches):
        tasks.until_executed.delay("warm")
        confirmer.flush()
        yield lock_server
        confirmer._waiting.clear()


def stop(server: EmbeddedRedis, how: str) -> None:
    """Take the server away: dead at once, or frozen so that every question times out."""
    if how == "stopped":
        server.stop()
    else:
        server.pause()


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_proceed_publishes_without_a_lock_within_the_timeout_and_then_at_once(
    down: EmbeddedRedis,
    celery_env: Environment,
    redis_client: redis.Redis,
    heard: dict[str, list[dict[str, Any]]],
    log: pytest.LogCaptureFixture,
    key: str,
    how: str,
) -> None:
    stop(down, how)
    begun = time.monotonic()
    first = tasks.until_executed.delay(key)
    assert time.monotonic() - begun < TIMEOUT
    begun = time.monotonic()
    others = [tasks.until_executed.delay(key) for _ in range(5)]
    assert time.monotonic() - begun < 0.5, "the breaker asks a dead store no more"
    results = [first, *others]
    assert {(result.outcome, result.duplicate) for result in results} == {("unprotected", False)}
    assert ids(redis_client, celery_env.namespace)[1:] == [result.id for result in results]
    assert len({result.fingerprint for result in results}) == 1
    (said,) = heard["store_unavailable"]
    assert (said["store"], said["verb"]) == ("default", "acquire")
    (line,) = [record for record in log.records if record.levelname == "WARNING"]
    assert line.getMessage().startswith("lock store 'default' is unavailable (acquire): ")
    if how == "frozen":
        down.resume()


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_raise_refuses_and_publishes_nothing(
    down: EmbeddedRedis,
    celery_env: Environment,
    redis_client: redis.Redis,
    heard: dict[str, list[dict[str, Any]]],
    key: str,
    how: str,
) -> None:
    stop(down, how)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"until_executed was not queued.*on_store_error="):
            tasks.until_executed.apply_async((key,), unique=RAISE)
    assert len(ids(redis_client, celery_env.namespace)) == 1, "the warm one"
    assert {said["outcome"] for said in heard["dispatch_decided"]} == {"unknown"}
    assert {type(said["error"]) for said in heard["dispatch_decided"]} == {StoreUnavailable}
    if how == "frozen":
        down.resume()


def test_a_store_that_comes_back_is_used_again(
    down: EmbeddedRedis, celery_env: Environment, key: str
) -> None:
    down.stop()
    assert tasks.until_executed.delay(key).outcome == "unprotected"
    down.start()
    result = wait_for(lambda: _accepted(key), 10, every=0.2, what="an accepted call")
    assert state(result, tasks.until_executed.name) == [(result.id, "W")]
    assert tasks.until_executed.delay(key).id == result.id


def _accepted(key: str) -> Any:
    result = tasks.until_executed.delay(key)
    return result if result.outcome == "accepted" else None


def test_a_confirm_waits_for_a_store_that_went_away(
    down: EmbeddedRedis, celery_env: Environment, key: str
) -> None:
    """A frozen server loses nothing: the seat is still pending when it answers again, and is confirmed."""
    result = tasks.until_executed.delay(key)
    down.pause()
    confirmer.flush()
    down.resume()
    wait_for(lambda: _is_waiting(result), 10, every=0.2, what="the confirm")


def _is_waiting(result: Any) -> bool:
    """Look without sending what waits to be confirmed: that is the thread's to do."""
    name = tasks.until_executed.name
    found = stores["default"].inspect(Ref(shard_of(name, conf.SHARDS), result.fingerprint))
    return isinstance(found, Record) and [holder.state for holder in found.holders] == ["W"]


@pytest.mark.worker
@pytest.mark.parametrize("way", ["callback", "chain"])
def test_celerys_own_publish_never_fails_its_parent(
    down: EmbeddedRedis,
    celery_env: Environment,
    worker: StartWorker,
    journal: Journal,
    redis_client: redis.Redis,
    key: str,
    way: str,
) -> None:
    """Even under ``raise``: the parent has run, so the next step is published without a lock."""
    node = worker(celery_env.having(variables={"LOCKS_REDIS_URL": down.url}), concurrency=1)
    down.stop()
    step = tasks.until_executed.si(key).set(unique=RAISE, queue=key)
    if way == "callback":
        parent = tasks.plain.apply_async((f"{key}-parent",), link=step)
    else:
        parent = (tasks.plain.si(f"{key}-parent") | step).apply_async().parent
    assert parent.get(timeout=10) == f"{key}-parent"
    wait_for(lambda: ids(redis_client, celery_env.namespace, key), 10, what="the next step")
    assert parent.state == "SUCCESS"
    assert "StoreUnavailable" not in node.log


@pytest.mark.worker
def test_unprotected_jobs_run_and_locks_are_taken_again_when_the_store_is_back(
    down: EmbeddedRedis, celery_env: Environment, worker: StartWorker, journal: Journal, key: str
) -> None:
    worker(celery_env.having(variables={"LOCKS_REDIS_URL": down.url}), concurrency=2)
    down.stop()
    results = [tasks.until_executed.delay(key) for _ in range(2)]
    assert [result.get(timeout=15) for result in results] == [key] * 2
    assert len(journal.runs(key)) == 2
    down.start()
    result = wait_for(lambda: _accepted(f"{key}-after"), 10, every=0.2, what="an accepted call")
    assert result.get(timeout=15) == f"{key}-after"
