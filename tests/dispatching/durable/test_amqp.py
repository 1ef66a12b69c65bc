"""Kept calls over AMQP: published after the commit, and no wait for a RabbitMQ that is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from kombu import Connection, Queue

from django_jobdedup.dispatching import broker
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis, free_port
from tests.jobs import tasks
from tests.rig.amqp import URL
from tests.rig.engines import Engine
from tests.rig.environment import Environment, new_namespace

from .conftest import Base
from .test_broker_down import QUICKLY


@pytest.fixture
def over_amqp(
    redis_server: GivenRedis | EmbeddedRedis,
    redis_client: redis.Redis,
    queue: str,
    postgresql_engine: Engine,
    settings: Any,
) -> Iterator[Base]:
    """A world whose broker is RabbitMQ, with a store that keeps calls."""
    settings.JOBDEDUP_STORES = postgresql_engine.stores
    options = {"broker_url": URL, "task_default_queue": queue}
    world = Environment(new_namespace(), redis_server.url, celery=options)
    broker._breakers.clear()
    with world.entered(app):
        forget_queues()
        yield Base(postgresql_engine, world, redis_client)
    forget_queues()
    broker._breakers.clear()
    world.clean()


def forget_queues() -> None:
    """Let Celery read its queues anew; its router keeps those that it has seen."""
    for name in ("queues", "router"):
        app.amqp.__dict__.pop(name, None)


def waiting(queue: str) -> list[str]:
    """Take the ids of the messages out of a queue."""
    found = []
    with Connection(URL) as connection:
        bound = Queue(queue)(connection.default_channel)
        while (message := bound.get(no_ack=True)) is not None:
            found.append(message.headers["id"])
    return found


def test_a_commit_publishes_over_amqp(over_amqp: Base, queue: str) -> None:
    """As over Redis: in order, under the callers' ids, and again when the relay finds a row."""
    with over_amqp.atomic():
        results = [tasks.until_executed.delay(f"key-{n}") for n in range(5)]
    assert waiting(queue) == [result.id for result in results]
    assert set(over_amqp.states()) == {"published"}


def test_a_rabbitmq_that_is_gone_costs_no_time(over_amqp: Base, queue: str) -> None:
    """A port at which nobody listens is refused at once, with a connection in the pool and without."""
    gone = f"amqp://guest:guest@127.0.0.1:{free_port()}//"
    with over_amqp.world.having(celery={"broker_url": gone}).entered(app):
        started = time.monotonic()
        with over_amqp.atomic():
            results = [tasks.until_executed.delay(f"key-{n}") for n in range(5)]
        alone = tasks.until_executed.delay("alone")
        assert time.monotonic() - started < QUICKLY
        assert {result.outcome for result in [*results, alone]} == {"accepted"}
    assert set(over_amqp.states()) == {"pending"}
