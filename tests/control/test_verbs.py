"""``peek``, ``release`` and ``cancel``, against Redis and a real worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult
from django.test import override_settings

from django_jobdedup import LockInUse, PolicyError, StoreUnavailable, cancel, peek, release
from django_jobdedup.conf import conf
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.fingerprint.digest import shard_of
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record, Ref
from testproject.embedded_redis import free_port
from tests.dispatching.looking import ids, state
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

#: Celery's own way to store a result.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")
NODE = {"concurrency": 2}
NAME = "tests.jobs.tasks.until_executed"


def queued(key: str, **options: Any) -> Any:
    """Queue a job that no worker takes."""
    result = tasks.until_executed.apply_async((key,), queue=f"q-{key}", **options)
    confirmer.flush()
    return result


def running(diary: Journal, key: str, seconds: float = 3.0) -> Any:
    """Start a job that takes its time."""
    result = tasks.until_executed.delay(key, seconds=seconds)
    wait_for(lambda: diary.runs(key), 10, what="the start")
    return result


# peek


def test_nobody_holds_what_was_never_called(world: Environment, key: str) -> None:
    assert peek(tasks.until_executed, key) is None


def test_a_waiting_job_is_shown_with_since_until_due_and_refusals(world: Environment, key: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    result = queued(key, countdown=60)
    queued(key)
    queued(key)
    found = peek(tasks.until_executed, key)
    assert found is not None
    (holder,) = found.holders
    assert (found.name, found.fingerprint, found.store) == (NAME, result.fingerprint, "default")
    assert (holder.id, holder.state, holder.alive, holder.refused) == (result.id, "waiting", True, 2)
    assert found.waiting == found.holders
    assert found.running == ()
    assert found.refused == 2
    assert before < holder.since < datetime.now(UTC) + timedelta(seconds=1)
    assert holder.due is not None
    assert timedelta(seconds=55) < holder.due - holder.since < timedelta(seconds=61)
    assert holder.until > holder.due


@pytest.mark.parametrize("spelling", ["task", "keyword", "signature", "set", "fingerprint", "lock"])
def test_every_spelling_finds_the_same_lock(world: Environment, key: str, spelling: str) -> None:
    result = queued(key)
    found = {
        "task": lambda: peek(tasks.until_executed, key),
        "keyword": lambda: peek(tasks.until_executed, key=key),
        "signature": lambda: peek(tasks.until_executed.s(key)),
        "set": lambda: peek(tasks.until_executed.s().set(queue="other"), key),
        "fingerprint": lambda: peek(result.fingerprint),
        "lock": lambda: peek(peek(result.fingerprint)),
    }[spelling]()
    assert found is not None
    assert [each.id for each in found.holders] == [result.id]


def test_the_options_of_a_signature_count_as_in_its_dispatch(world: Environment, key: str) -> None:
    call = tasks.until_executed.s(key).set(unique={"scope": "queue"}, queue=f"q-{key}")
    result = call.apply_async()
    assert peek(tasks.until_executed, key) is None
    found = peek(call)
    assert found is not None
    assert found.fingerprint == result.fingerprint


def test_a_lapsed_holder_is_not_shown(world: Environment, key: str) -> None:
    queued(key, unique={"ttl": 0.1})
    wait_for(lambda: peek(tasks.until_executed, key) is None, 5, what="the lapse")


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        (tasks.plain, PolicyError, "has no policy"),
        ("something", TypeError, "stands for no lock"),
        (3, TypeError, "stands for no lock"),
        (AsyncResult("some-id"), TypeError, "does not know its lock: it was restored from an id"),
    ],
)
def test_what_has_no_lock_is_refused(
    world: Environment, key: str, what: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        peek(what, key)


def test_a_store_that_does_not_answer_is_said_so(world: Environment, key: str) -> None:
    nowhere = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{free_port()}/0",
        }
    }
    with override_settings(CACHES={**nowhere, "jobdedup": nowhere["default"]}):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            peek(tasks.until_executed, key)
        with pytest.raises(StoreUnavailable):
            cancel(tasks.until_executed.s(key))


# release


def test_a_waiting_lock_is_released_and_its_message_still_runs(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    result = queued(key)
    assert peek(result) == peek(tasks.until_executed, key)
    assert [each.id for each in release(tasks.until_executed, key)] == [result.id]
    assert release(tasks.until_executed.s(key)) == ()
    assert ids(redis_client, world.namespace, f"q-{key}") == [result.id]
    assert queued(key).outcome == "accepted"


def test_only_what_was_shown_is_released(world: Environment, key: str) -> None:
    queued(key)
    seen = peek(tasks.until_executed, key)
    assert seen is not None
    release(seen)
    second = queued(key)
    release(seen)
    assert state(second, NAME) == [(second.id, "W")]


@pytest.mark.worker
def test_a_running_lock_is_released_by_force_only(
    world: Environment, node: Worker, diary: Journal, key: str
) -> None:
    result = running(diary, key, 4.0)
    found = peek(tasks.until_executed, key)
    assert found is not None
    assert [each.id for each in found.running] == [result.id]
    assert found.running[0].by
    with pytest.raises(LockInUse, match="write force=True") as caught:
        release(tasks.until_executed.s(key))
    assert (caught.value.holder_id, caught.value.fingerprint) == (result.id, result.fingerprint)
    assert state(result, NAME) == [(result.id, "R")]
    assert [each.id for each in release(tasks.until_executed.s(key), force=True)] == [result.id]
    second = tasks.until_executed.delay(key)
    assert second.outcome == "accepted"
    second.get(timeout=10)
    node.wait_for_log(f"job {result.id} no longer holds lock")
    assert state(result, NAME) == [], "its next renewal has not taken it again"
    result.get(timeout=10)


def test_a_waiting_lock_that_calls_have_joined_is_released_by_force_only(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    """Their arguments live in it alone."""
    rerun = {"unique": {"on_conflict": "rerun", "key": "key"}}
    first = queued(key, **rerun)
    assert queued(key, **rerun).id == first.id
    call = tasks.until_executed.s(key).set(**rerun)
    with pytest.raises(LockInUse, match=r"joined it \(1\): .* write force=True") as caught:
        release(call)
    assert (caught.value.holder_id, caught.value.fingerprint) == (first.id, first.fingerprint)
    assert state(first, NAME) == [(first.id, "W")]
    shown = peek(call)
    assert queued(key, **rerun).id == first.id
    assert release(shown, force=True) == (), "one more has joined since it was shown"
    assert [each.id for each in release(call, force=True)] == [first.id]
    assert ids(redis_client, world.namespace, f"q-{key}") == [first.id]


# cancel


@pytest.mark.worker
@pytest.mark.parametrize("by", ["signature", "arguments", "result", "id", "fingerprint"])
def test_a_cancelled_job_never_runs_and_nobody_waits_for_it(
    world: Environment, node: Worker, diary: Journal, redis_client: redis.Redis, key: str, by: str
) -> None:
    result = queued(key)
    what = {
        "signature": tasks.until_executed.s(key),
        "arguments": tasks.until_executed,
        "result": result,
        "id": result.id,
        "fingerprint": result.fingerprint,
    }[by]
    more = (key,) if by == "arguments" else ()
    assert cancel(what, *more) == (result.id,)
    assert cancel(what, *more) == ()
    with pytest.raises(TaskRevokedError):
        result.get(timeout=5)
    assert AsyncResult(result.id).state == "REVOKED"
    second = tasks.until_executed.delay(key, seconds=0)
    assert second.outcome == "accepted"
    second.get(timeout=10)
    # Now a worker gets the message after all.
    tasks.until_executed.app.control.add_consumer(f"q-{key}", reply=True)
    wait_for(lambda: not ids(redis_client, world.namespace, f"q-{key}"), 10, what="the message is taken")
    tasks.until_executed.delay(f"{key}-after").get(timeout=10)
    assert [run.id for run in diary.runs(key)] == [second.id]
    assert AsyncResult(result.id).state == "REVOKED"


@pytest.mark.worker
def test_a_running_job_is_left_alone(world: Environment, node: Worker, diary: Journal, key: str) -> None:
    result = running(diary, key, 1.0)
    assert cancel(tasks.until_executed.s(key)) == ()
    assert cancel(result) == ()
    result.get(timeout=10)


def test_a_result_backend_that_fails_does_not_hide_that_a_job_is_called_off(
    world: Environment, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as ``rpc://``, to which only workers can write."""
    result = queued(key)

    def failing(*_: Any, **__: Any) -> None:
        raise RuntimeError("no backend")

    monkeypatch.setattr(tasks.until_executed.app.backend, "mark_as_revoked", failing)
    assert cancel(result) == (result.id,)
    assert peek(tasks.until_executed, key) is None


def test_a_job_that_waits_for_its_retry_is_cancelled_with_the_attempt_that_is_to_come(
    world: Environment, key: str
) -> None:
    """Its marker says that attempt 0 has ended."""
    from django_jobdedup.outcomes import How
    from django_jobdedup.stores.requests import Claim, Finish, Token

    result = queued(key)
    ref, store = Ref(shard_of(NAME, conf.SHARDS), result.fingerprint), stores["default"]
    store.claim(Claim(ref, result.id, 0, "nonce"))
    store.finish(Finish(Token(ref, result.id, "nonce"), 0, How.HANDOVER))
    assert cancel(result) == (result.id,)
    record = store.inspect(ref, result.id)
    assert isinstance(record, Record)
    assert record.holders == ()
    assert record.marker is not None
    assert record.marker.final


def test_the_marker_outlives_a_far_eta(world: Environment, redis_client: redis.Redis, key: str) -> None:
    result = queued(key, countdown=100_000)
    cancel(result)
    (mark,) = redis_client.scan_iter(match=f"{{{world.namespace}:*:mark:{result.id}", count=1000)
    assert redis_client.pttl(mark) > 100_000_000


def test_an_id_that_nobody_knows_is_no_error(world: Environment, key: str) -> None:
    queued(key)
    assert cancel(f"nobody-{key}") == ()


def test_an_id_is_found_among_many_locks(world: Environment, key: str, monkeypatch: Any) -> None:
    from django_jobdedup.control import finding

    monkeypatch.setattr(finding, "PAGE", 3)
    results = [queued(f"{key}-{number}") for number in range(10)]
    assert [cancel(each.id) for each in results] == [(each.id,) for each in results]
