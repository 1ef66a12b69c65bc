"""The dispatching half of U30: a dead broker costs the request no time and the job nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.db import DatabaseError
from kombu.exceptions import OperationalError

from django_jobdedup import dispatch_many
from django_jobdedup.call import Call
from django_jobdedup.dispatching import broker, outbox
from django_jobdedup.middleware.base import Middleware
from django_jobdedup.stores.results import Unavailable
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis
from tests.jobs import tasks
from tests.rig.engines import Engine
from tests.rig.environment import Environment, new_namespace

from .conftest import Base

#: What a request may take with a dead broker; Celery alone waits six seconds for it, and its results twenty.
QUICKLY = 2.0


@pytest.fixture
def server() -> Iterator[EmbeddedRedis]:
    """A broker that may go down."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def shaky(server: EmbeddedRedis, postgresql_engine: Engine, settings: Any) -> Iterator[Base]:
    """A world whose broker, and whose results, are on that server."""
    world = Environment(
        new_namespace(), server.url, celery={"broker_url": server.url, "result_backend": server.url}
    )
    broker._breakers.clear()
    with world.entered(app), redis.Redis.from_url(server.url, decode_responses=True) as client:
        settings.JOBDEDUP_STORES = postgresql_engine.stores
        yield Base(postgresql_engine, world, client)
    broker._breakers.clear()


@pytest.mark.parametrize("in_transaction", [True, False])
@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.usefixtures("soon")
def test_a_request_never_waits_for_a_dead_broker(
    shaky: Base, server: EmbeddedRedis, in_transaction: bool, connected: bool
) -> None:
    """The caller's calls are accepted at once, and published when the broker is back, under the same ids."""
    if connected:
        tasks.until_executed.delay("before")
    server.stop()
    started = time.monotonic()
    if in_transaction:
        with shaky.atomic():
            results = [tasks.until_executed.delay(f"key-{n}") for n in range(20)]
    else:
        results = [tasks.until_executed.delay(f"key-{n}") for n in range(20)]
    assert time.monotonic() - started < QUICKLY
    assert [result.outcome for result in results] == ["accepted"] * 20
    ids = [result.id for result in results]
    assert [row.token for row in shaky.rows() if row.state == "pending"] == ids
    again = tasks.until_executed.delay("key-3")
    assert (again.outcome, again.id) == ("suppressed", ids[3])
    server.start()
    assert [sent.what for sent in shaky.relay(20)] == ["published"] * 20
    assert shaky.sent() == ids
    assert "pending" not in shaky.states()


@pytest.mark.usefixtures("soon")
def test_the_relay_stops_at_a_broker_that_is_down(shaky: Base, server: EmbeddedRedis) -> None:
    """It learns that nothing was its rows' fault, and asks the broker once, not once a row."""
    server.stop()
    with shaky.atomic():
        for number in range(30):
            tasks.until_executed.delay(f"key-{number}")
    started = time.monotonic()
    sent = shaky.relay(30)
    assert time.monotonic() - started < QUICKLY
    assert [one.what for one in sent] == ["broker down"] * 30
    assert all("refused" in one.reason for one in sent)
    assert [row.attempts for row in shaky.rows()] == [0] * 30


@pytest.mark.parametrize("way", ["one by one", "in a transaction", "many"])
def test_a_sender_that_knows_leaves_its_rows_to_a_relay_at_once(
    shaky: Base, server: EmbeddedRedis, way: str
) -> None:
    """It has tried: nobody has to wait for what it might still do."""
    server.stop()
    keys = [f"key-{n}" for n in range(3)]
    if way == "many":
        results = dispatch_many(tasks.until_executed.s(key) for key in keys)
    elif way == "one by one":
        results = [tasks.until_executed.delay(key) for key in keys]
    else:
        with shaky.atomic():
            results = [tasks.until_executed.delay(key) for key in keys]
    due = shaky.store.due()
    assert not isinstance(due, Unavailable)
    assert {intent.id for intent in due} == {result.id for result in results}


def test_a_relay_that_knows_takes_its_rows_out_of_its_hands(shaky: Base, server: EmbeddedRedis) -> None:
    server.stop()
    result = tasks.until_executed.delay("a")
    for _ in range(2):
        due = shaky.store.due()
        assert not isinstance(due, Unavailable)
        assert [sent.what for sent in outbox.send(shaky.store, due)] == ["broker down"]
    server.start()
    assert [sent.what for sent in outbox.send(shaky.store, shaky.store.due())] == ["published"]  # type: ignore[arg-type]
    assert shaky.sent() == [result.id]


@pytest.mark.usefixtures("soon")
def test_a_promise_is_kept_over_a_dead_broker(shaky: Base, server: EmbeddedRedis) -> None:
    """A call that goes without a seat gets its row when its message cannot go."""
    server.stop()
    holder = tasks.until_executed.delay("a")
    promised = tasks.until_executed.apply_async(("a",), task_id="promised")
    assert (holder.outcome, promised.outcome) == ("accepted", "followed")
    assert [(row.token.partition("\x1e")[0], row.state) for row in shaky.rows()] == [
        (holder.id, "pending"),
        ("promised", "pending"),
    ]
    server.start()
    assert [sent.what for sent in shaky.relay(2)] == ["published"] * 2
    assert shaky.sent() == [holder.id, "promised"]


def test_with_both_down_the_caller_gets_the_error(
    shaky: Base, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that neither the store nor the broker has taken is nobody's: it is not called accepted."""

    def refuse(self: Any, requests: Any) -> Any:
        return [Unavailable("down") for _ in requests]

    def fail(self: Any, requests: Any) -> None:
        raise DatabaseError("down")

    monkeypatch.setattr(type(shaky.store), "acquire", lambda self, request: Unavailable("down"))
    monkeypatch.setattr(type(shaky.store), "acquire_many", refuse)
    monkeypatch.setattr(type(shaky.store), "defer", fail)
    server.stop()
    with pytest.raises(OperationalError):
        tasks.until_executed.delay("a")


def test_a_connection_that_was_lost_is_opened_anew(shaky: Base, server: EmbeddedRedis) -> None:
    """A broker that was restarted takes the next message: nothing waits for the relay."""
    tasks.until_executed.delay("before")
    server.stop()
    server.start()
    result = tasks.until_executed.delay("after")
    assert shaky.sent() == [result.id]
    assert shaky.states() == ["published", "published"]


def test_a_broker_that_failed_is_left_alone_for_a_moment(shaky: Base, server: EmbeddedRedis) -> None:
    """Then it is asked again: the breaker lets one through."""
    clock = [100.0]
    broker._breakers[app] = broker.Breaker(clock=lambda: clock[0])
    server.stop()
    tasks.until_executed.delay("first")
    server.start()
    tasks.until_executed.delay("second")
    assert shaky.sent() == []
    clock[0] += 1.0
    third = tasks.until_executed.delay("third")
    assert shaky.sent() == [third.id]


@pytest.mark.usefixtures("soon")
def test_a_message_that_cannot_be_sent_is_the_callers_error(base: Base, settings: Any) -> None:
    """Out of a transaction it is raised, and leaves nothing behind; the broker is not to blame."""
    app.conf.task_create_missing_queues, app.amqp.queues.create_missing = False, False
    try:
        with pytest.raises(Exception, match="nowhere"):
            tasks.until_executed.apply_async(("a",), queue="nowhere")
    finally:
        app.conf.task_create_missing_queues, app.amqp.queues.create_missing = True, True
    assert [row.token for row in base.rows() if row.seat] == []
    assert tasks.until_executed.delay("a").outcome == "accepted"


@pytest.mark.usefixtures("soon")
def test_a_row_that_can_never_be_read_does_not_hold_up_the_others(base: Base) -> None:
    """It fails by itself, with the reason; those around it go out."""
    with base.atomic():
        results = [tasks.until_executed.delay(f"key-{n}") for n in range(3)]
        poisonous = base.rows()[1]
        poisonous.call = b"nothing that anybody could read"
        poisonous.save(using=base.using, update_fields=["call"])
    assert base.sent() == [result.id for result in results]  # inline, from what its caller gave
    type(poisonous).objects.using(base.using).update(state="pending", seat="", wait_key=None, publish_at=1)
    sent = base.relay(3)
    assert [one.what for one in sent] == ["published", "failed", "published"]
    assert "StoredCallError: A stored call cannot be read" in sent[1].reason


def test_a_layer_that_raises_for_one_call_fails_alone(base: Base, settings: Any) -> None:
    """The inner middleware sees the calls after the commit, together; one that it chokes on fails alone."""
    settings.JOBDEDUP_MIDDLEWARE = [
        "django_jobdedup.middleware.locking.LockingMiddleware",
        f"{__name__}.Choking",
    ]
    with base.atomic():
        results = [tasks.until_executed.delay(key) for key in ("a", "choke", "b")]
    assert base.sent() == [results[0].id, results[2].id]
    assert base.states() == ["published", "pending", "published"]


class Choking(Middleware):
    """A layer that cannot bear one of the calls."""

    def dispatch(self, calls: Any, call_next: Any) -> Any:
        """Choke."""
        if any(call.args == ("choke",) for call in calls):
            raise LookupError("choked")
        return call_next(calls)


def test_results_that_are_down_are_not_the_fault_of_a_row(celery_env: Environment) -> None:
    """Celery asks the result backend before it publishes; what it says then is no error of the message."""

    def subscribe_in_vain(*_: Any, **__: Any) -> None:
        try:
            raise redis.ConnectionError("refused")
        except redis.ConnectionError as error:
            raise RuntimeError("Retry limit exceeded") from error

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("something else")

    with pytest.raises(OperationalError, match="the result backend does not answer: Retry limit"):
        broker.publish(app, Call("a.b", "1"), subscribe_in_vain)
    assert broker.breaker_of(app).refuses()
    broker._breakers.clear()
    with pytest.raises(RuntimeError, match="something else"):
        broker.publish(app, Call("a.b", "1"), fail)
    assert not broker.breaker_of(app).refuses()
