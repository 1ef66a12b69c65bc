"""What cannot be read in full and surely is said to be unreadable; nothing is guessed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from django_jobdedup.brokers.base import Broker
from django_jobdedup.brokers.handler import broker_for
from django_jobdedup.brokers.rabbitmq.broker import RabbitBroker
from django_jobdedup.brokers.redis import broker as redis_broker
from django_jobdedup.brokers.redis.broker import RedisBroker
from django_jobdedup.brokers.unreadable import Unreadable
from django_jobdedup.exceptions import JobDedupError
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis
from tests.rig.environment import Environment

from .hands import QUEUE, Hands

QUESTIONS: dict[str, Callable[[Broker], Any]] = {
    "queues": lambda broker: broker.queues(),
    "count": lambda broker: broker.count(QUEUE),
    "messages": lambda broker: list(broker.messages(QUEUE)),
    "unacked": lambda broker: list(broker.unacked()),
    "find": lambda broker: broker.find(["id"], [QUEUE]),
}

asked = pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)


@asked
def test_a_server_that_is_down(
    celery_env: Environment, lock_server: EmbeddedRedis, question: Callable[[Broker], Any]
) -> None:
    url = lock_server.url.replace("://", "://user:secret@")
    lock_server.stop()
    down = celery_env.having(celery={"broker_url": url}).entered(app)
    with down, pytest.raises(Unreadable, match=r"The broker redis://.* cannot be read: .*refused") as caught:
        question(broker_for(app))
    assert "secret" not in str(caught.value)


@asked
def test_a_server_that_hangs(
    celery_env: Environment,
    lock_server: EmbeddedRedis,
    monkeypatch: pytest.MonkeyPatch,
    question: Callable[[Broker], Any],
) -> None:
    monkeypatch.setattr(redis_broker, "TIMEOUTS", {"socket_timeout": 0.2, "socket_connect_timeout": 0.2})
    with celery_env.having(celery={"broker_url": lock_server.url}).entered(app):
        lock_server.pause()
        try:
            with pytest.raises(Unreadable, match="cannot be read: Timeout"):
                question(broker_for(app))
        finally:
            lock_server.resume()


def test_a_server_that_dies_in_the_middle(celery_env: Environment, lock_server: EmbeddedRedis) -> None:
    with celery_env.having(celery={"broker_url": lock_server.url}).entered(app), Hands(app) as hands:
        for _ in range(40):
            hands.send()
        messages = broker_for(app).messages(QUEUE)
        next(messages)
        lock_server.stop()
        with pytest.raises(Unreadable):
            list(messages)


def test_the_projects_own_timeouts_hold(celery_env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    options = {"broker_transport_options": {"socket_timeout": 1.5}}
    with celery_env.having(celery=options).entered(app):
        ask = app.connection_for_read
        monkeypatch.setattr(app, "connection_for_read", lambda **given: seen.append(given) or ask(**given))
        RedisBroker(app).count(QUEUE)
    (given,) = seen
    assert given["transport_options"]["socket_timeout"] == 1.5
    assert given["transport_options"]["socket_connect_timeout"] == 5.0


@pytest.mark.parametrize("name", ["list", "priority list", "unacked"])
def test_a_key_of_another_type(broker: Broker, hands: Hands, name: str) -> None:
    keys = {"list": hands.key(), "priority list": hands.key(step=6), "unacked": f"{hands.prefix}unacked"}
    hands.client.set(keys[name], "something else")

    with pytest.raises(Unreadable, match="WRONGTYPE"):
        broker.find(["id"], [QUEUE])


@pytest.mark.environment(celery={"broker_transport_options": {"ack_emulation": False}})
def test_workers_that_do_not_note_what_they_hold(broker: Broker, hands: Hands) -> None:
    id = hands.send()

    assert broker.find([id], [QUEUE]).missing == frozenset()
    with pytest.raises(Unreadable, match="ack_emulation=False"):
        broker.find([id, "gone"], [QUEUE])


def test_several_servers(celery_env: Environment, lock_server: EmbeddedRedis) -> None:
    """The message may have been published to the other one."""
    urls = f"{app.conf.broker_url};{lock_server.url}"
    with celery_env.having(celery={"broker_url": urls}).entered(app), Hands(app) as hands:
        id = hands.send()
        assert broker_for(app).find([id], [QUEUE]).missing == frozenset()
        with pytest.raises(Unreadable, match="broker_url names several Redis servers"):
            broker_for(app).find([id, "gone"], [QUEUE])


def test_a_mistake_of_the_caller_is_not_taken_for_an_unreadable_broker(broker: Broker, hands: Hands) -> None:
    hands.send()
    messages = broker.messages(QUEUE)
    next(messages)
    with pytest.raises(KeyError):
        messages.throw(KeyError("of the caller"))  # type: ignore[attr-defined]


# Which broker


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://127.0.0.1:1/0", RedisBroker),
        ("rediss://127.0.0.1:1/0?ssl_cert_reqs=required", RedisBroker),
        ("sentinel://127.0.0.1:1;sentinel://127.0.0.1:2", RedisBroker),
        ("amqp://guest:guest@127.0.0.1:1//", RabbitBroker),
        ("pyamqp://127.0.0.1:1//", RabbitBroker),
    ],
)
def test_the_broker_follows_the_transport_without_connecting(url: str, kind: type[Broker]) -> None:
    assert type(broker_for(Celery(broker=url, set_as_current=False))) is kind


@pytest.mark.parametrize(("url", "name"), [("memory://", "memory"), ("filesystem://", "filesystem")])
def test_other_transports_are_unreadable(url: str, name: str) -> None:
    with pytest.raises(Unreadable, match=f"Messages of the transport '{name}' .* cannot be looked at"):
        broker_for(Celery(broker=url, set_as_current=False))


def test_the_error_is_of_the_family_and_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(Unreadable("because")))

    assert isinstance(error, JobDedupError)
    assert (error.reason, str(error)) == ("because", "because")
