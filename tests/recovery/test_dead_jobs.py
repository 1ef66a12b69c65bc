"""A job that the relay gives up: its row says why, whatever the words are, and who waits for it is told."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from celery import chain, chord
from celery.result import AsyncResult

from django_jobdedup import JobDead, outcome_of
from django_jobdedup.dispatching import outbox
from django_jobdedup.models import JobIntent
from django_jobdedup.recovery import relay as module
from django_jobdedup.recovery.duty import Tally, never
from django_jobdedup.recovery.relay import relay
from testproject.celery import app
from tests.dispatching.durable.conftest import Base
from tests.jobs import tasks
from tests.rig.engines import Engine
from tests.rig.environment import Environment
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

REJECT = {"lock": "until_executed", "key": "key", "on_conflict": "reject"}


@pytest.fixture
def base(engine: Engine, celery_env: Environment, settings: Any, redis_client: redis.Redis) -> Base:
    """A database with a store in it."""
    settings.JOBDEDUP_STORES = engine.stores
    return Base(engine, celery_env, redis_client)


@pytest.fixture(autouse=True)
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has failed comes again at once."""
    settings.JOBDEDUP_CONFIRM_WITHIN = 0.1
    monkeypatch.setattr(module, "PAUSE", 0.001)


def relay_until(base: Base, *states: str) -> Tally:
    """Relay until the rows have these states."""
    tally = Tally()

    def turn() -> bool:
        tally.update(relay(never))
        return base.states() == list(states)

    wait_for(turn, 20, what=lambda: f"{states}, there are {base.states()}")
    return tally


def spoil(base: Base, task_id: str) -> None:
    """Damage a stored call."""
    assert JobIntent.objects.using(base.using).filter(token=task_id).update(call=b"junk")


@pytest.mark.parametrize("words", ["they said \0", "caf\udce9", "Grüße 🎂", "x" * 100_000])
def test_any_words_of_an_error_fit_into_the_row(
    base: Base, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    publish = outbox.publish

    def failing(app: Any, call: Any, way: Any = None) -> Any:
        if call.args[0] == "bad":
            raise ValueError(words)
        return publish(app, call, way)

    monkeypatch.setattr(outbox, "publish", failing)
    with base.interrupted():
        tasks.until_executed.delay("bad")
        good = tasks.until_executed.delay("good")
    tally = relay_until(base, "dead", "published")
    assert (tally["failed"], tally["dead"]) == (5, 1)
    assert base.sent() == [good.id]
    reason = base.rows()[0].reason
    assert reason.startswith("ValueError: ")
    assert reason[12:16] == words[:4] or "\\" in reason
    assert len(reason) <= 2000


def test_who_waits_for_a_dead_job_is_told(base: Base) -> None:
    with base.interrupted():
        result = tasks.until_executed.delay("a")
    with base.interrupted():
        equal = tasks.until_executed.delay("a")
    spoil(base, result.id)
    relay_until(base, "dead", "published")
    for each in (result, AsyncResult(result.id, app=app)):
        with pytest.raises(JobDead) as told:
            each.get(timeout=10)
        assert told.value.task_id == result.id
        assert "StoredCallError" in told.value.reason
    assert equal.outcome == "accepted"


def test_what_hangs_on_a_dead_job_is_ended_with_it(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "publish", _refusing)
    with base.interrupted():
        workflow = chain(tasks.until_executed.s("a"), tasks.plain.si("b")).apply_async()
        body = chord([tasks.until_executed.s("c")], tasks.plain.si("d")).apply_async()
    relay_until(base, "dead", "dead")
    for result in (workflow, body):
        with pytest.raises(Exception, match="dead"):
            result.get(timeout=10)


def _refusing(app: Any, call: Any, way: Any = None) -> Any:
    raise ValueError("no such exchange")


def test_a_result_that_nobody_keeps_is_not_stored(base: Base) -> None:
    with base.interrupted():
        result = tasks.until_executed.apply_async(("a",), ignore_result=True)
    JobIntent.objects.using(base.using).update(attempts=4)
    spoil(base, result.id)
    relay_until(base, "dead")


@pytest.mark.parametrize("way", ["in a transaction", "in autocommit"])
def test_a_rejected_call_says_in_every_process_who_covers_it(base: Base, way: str) -> None:
    first = tasks.until_executed.apply_async(("a",), unique=REJECT)
    if way == "in a transaction":
        with base.atomic():
            second = tasks.until_executed.apply_async(("a",), unique=REJECT)
    else:
        second = tasks.until_executed.apply_async(("a",), unique=REJECT)
    assert base.states() == ["published", "dead"]
    dead = base.rows()[1]
    assert dead.mark_by == first.id
    assert second.outcome == "suppressed"
    assert outcome_of(AsyncResult(dead.token, app=app)) == "suppressed"
