"""A job that has to go on while the broker is down: its row holds the next message, the relay sends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery.exceptions import Reject
from kombu.exceptions import OperationalError

from django_jobdedup.call import Execution, Running, running
from django_jobdedup.dispatching import broker, inline
from django_jobdedup.executing import putting_off
from django_jobdedup.header import HEADER, Header
from django_jobdedup.middleware.releasing import give_back
from django_jobdedup.middleware.starting import claim
from django_jobdedup.outcomes import How
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis
from tests.jobs import tasks
from tests.rig.engines import BACKEND, Engine
from tests.rig.environment import Environment, new_namespace
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import work
from .conftest import Base


@pytest.fixture
def server() -> Iterator[EmbeddedRedis]:
    """A broker that may go down."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def shaky(
    server: EmbeddedRedis, redis_server: Any, postgresql_engine: Engine, settings: Any
) -> Iterator[Base]:
    """A world whose broker is on that server; results are elsewhere."""
    celery = {
        "broker_url": server.url,
        "imports": ["tests.dispatching.durable.work"],
        "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0, "interval_max": 0.1},
        "broker_transport_options": {"socket_connect_timeout": 1},
    }
    world = Environment(new_namespace(), redis_server.url, celery=celery)
    broker._breakers.clear()
    with world.entered(app), redis.Redis.from_url(server.url, decode_responses=True) as client:
        settings.JOBDEDUP_STORES = postgresql_engine.stores
        yield Base(postgresql_engine, world, client)
    world.clean()
    broker._breakers.clear()


def started(base: Base, task: Any) -> Running:
    """The start of a body whose message was taken out of the broker."""
    result = task.delay("a")
    header = Header.decode(base.message(result.id)["headers"][HEADER])
    assert header is not None
    base._client.flushdb()
    return Running(Execution(task.name, result.id, header, "nonce", task_object=task))


@pytest.mark.worker
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("inside", [False, True])
def test_a_retry_is_sent_by_the_relay(
    shaky: Base, server: EmbeddedRedis, tmp_path: Path, inside: bool
) -> None:
    """With what it says itself, also where it was made in a transaction that its exception rolled back."""
    stores = {"default": {"BACKEND": BACKEND, "LOCATION": "default"}}
    with Worker(shaky.elsewhere(JOBDEDUP_STORES=stores), tmp_path, concurrency=1) as worker:
        worker.wait_until_ready()
        result = work.retry_while_down.delay("first", inside)
        wait_for(lambda: shaky.states() == ["running"], 30, what=lambda: worker.log)
        server.stop()
        wait_for(lambda: shaky.states() == ["pending"], 30, what=lambda: worker.log)
        server.start()
        assert [sent.what for sent in shaky.relay()] == ["published"]
        assert result.get(timeout=60) == "well after 1"
        wait_for(lambda: shaky.states() == ["done"], 10)


@pytest.mark.parametrize("lock", ["until_executed", "while_executing"])
@pytest.mark.parametrize("has_claimed", [True, False])
def test_whatever_the_lock_and_whether_the_start_was_claimed(
    shaky: Base, server: EmbeddedRedis, lock: str, has_claimed: bool
) -> None:
    task = getattr(tasks, lock)
    body = started(shaky, task)
    claimed = claim(body.execution) if has_claimed else None
    server.stop()
    mark = running.set(body)
    try:
        body.active = True
        task.apply_async(("a",), task_id=body.execution.id, countdown=0.01)
        body.ended(How.HANDOVER, "retry")
        give_back(body.execution, claimed)
    finally:
        running.reset(mark)
    server.start()
    assert [sent.what for sent in shaky.relay()] == ["published"]
    assert shaky.sent() == [body.execution.id]
    assert shaky.states() == ["published"]


def test_what_a_message_itself_is_to_blame_for_is_raised(
    shaky: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = started(shaky, tasks.until_executed)
    claim(body.execution)

    def refuse(*_: Any) -> None:
        raise ValueError("too large")

    monkeypatch.setattr(inline, "publish", refuse)
    mark = running.set(body)
    try:
        body.active = True
        with pytest.raises(ValueError, match="too large"):
            tasks.until_executed.apply_async(("a",), task_id=body.execution.id)
    finally:
        running.reset(mark)
    assert (body.republished, body.unsent) == (False, None)


def test_a_put_off_is_left_to_the_relay(shaky: Base, server: EmbeddedRedis) -> None:
    """At once: nobody has to wait for a broker in a slot of the pool."""
    body = started(shaky, tasks.until_executed)
    signature = tasks.until_executed.s("a").set(task_id=body.execution.id)
    server.stop()
    putting_off._publish(signature, body.execution, 0.2, late=False)
    server.start()
    assert [sent.what for sent in shaky.relay()] == ["published"]
    assert shaky.sent() == [body.execution.id]


def test_with_late_ack_the_message_itself_goes_back(shaky: Base, server: EmbeddedRedis) -> None:
    body = started(shaky, tasks.until_executed)
    server.stop()
    with pytest.raises(Reject):
        putting_off._publish(tasks.until_executed.s("a"), body.execution, 0.2, late=True)
    assert shaky.states() == ["published"]


def test_where_another_delivery_runs_the_error_is_raised(
    shaky: Base, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row waits for that message."""
    monkeypatch.setattr(putting_off, "PAUSES", ())
    body = started(shaky, tasks.until_executed)
    claim(body.execution)
    server.stop()
    with pytest.raises(OperationalError):
        putting_off._publish(tasks.until_executed.s("a"), body.execution, 0.2, late=False)
    assert shaky.states() == ["running"]
