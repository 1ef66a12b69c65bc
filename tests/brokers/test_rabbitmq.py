"""RabbitMQ is counted, never browsed: over a real server, and a stand-in for its management API.

The stand-in answers in the form that RabbitMQ 3.10.8 was seen to use. The last test asks the real API; it
is left out where the plugin is not on.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlsplit

import kombu
import pytest
from kombu import Connection, Exchange, Producer, Queue
from kombu.transport.native_delayed_delivery import (
    calculate_routing_key,
    declare_native_delayed_delivery_exchanges_and_queues,
)

from django_jobdedup.brokers.found import Count
from django_jobdedup.brokers.handler import broker_for
from django_jobdedup.brokers.rabbitmq import broker as rabbitmq
from django_jobdedup.brokers.rabbitmq.broker import STALE, RabbitBroker
from django_jobdedup.brokers.unreadable import Unreadable
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis
from tests.rig.amqp import URL, listens, need_amqp
from tests.rig.environment import Environment, new_namespace
from tests.rig.waiting import wait_for

EMPTY = {"messages_ready": 0, "messages_unacknowledged": 0, "consumers": 0}


class Api:
    """Answers as the management API; ``queues`` and ``status`` are what it says, ``asked`` what it was."""

    def __init__(self) -> None:
        self.queues: Any = []
        self.status = 200
        self.asked: list[tuple[str, str]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.asked.append((self.path, self.headers["Authorization"]))
                body = api.queues if isinstance(api.queues, bytes) else json.dumps(api.queues).encode()
                self.send_response(api.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.close()


@pytest.fixture
def queue() -> str:
    need_amqp()
    return f"jobdedup-test-{secrets.token_hex(6)}"


@pytest.fixture
def celery_env(redis_server: GivenRedis | EmbeddedRedis, queue: str, api: Api) -> Iterator[Environment]:
    """A world whose broker is RabbitMQ, with the stand-in as its management API."""
    manager = {
        "manager_hostname": "127.0.0.1",
        "manager_port": api.server.server_address[1],
        "manager_userid": "watcher",
        "manager_password": "word",
    }
    environment = Environment(
        new_namespace(),
        redis_server.url,
        celery={"broker_url": URL, "broker_transport_options": manager, "task_default_queue": queue},
    )
    with environment.entered(app):
        yield environment
    environment.clean()


@pytest.fixture
def channel(celery_env: Environment) -> Iterator[Any]:
    with Connection(URL) as connection:
        yield connection.default_channel


@pytest.fixture(params=["classic", "quorum"])
def bound(request: pytest.FixtureRequest, channel: Any, queue: str) -> Iterator[Any]:
    """A queue of each kind, that exists only during a test."""
    exchange = Exchange("", type="direct")
    declared = Queue(queue, exchange, routing_key=queue, queue_arguments={"x-queue-type": request.param})(
        channel
    )
    declared.queue_declare()
    yield declared
    declared.delete()


def publish(bound: Any, count: int = 1) -> None:
    with Connection(URL) as connection:
        producer = connection.Producer(connection.channel())
        connection.default_channel.confirm_select()
        for number in range(count):
            producer.publish({"number": number}, exchange="", routing_key=bound.name)


def ready(bound: Any) -> int:
    return int(bound.queue_declare(passive=True).message_count)


def test_a_queue_is_counted(celery_env: Environment, bound: Any, api: Api, queue: str) -> None:
    publish(bound, 3)
    api.queues = [{"name": queue, "messages_ready": 1, "messages_unacknowledged": 2, "consumers": 0}]

    # What waits comes from the queue itself: the API is some seconds behind.
    wait_for(lambda: ready(bound) == 3, what="three messages")
    assert broker_for(app).count(queue) == Count(3, 2, 0)
    ((path, authorization),) = api.asked
    assert path.startswith("/api/queues/%2F?columns=name,")
    assert authorization == f"Basic {base64.b64encode(b'watcher:word').decode()}"


def test_a_count_without_the_api_says_nothing_of_unacked(
    celery_env: Environment, bound: Any, api: Api, queue: str
) -> None:
    publish(bound)
    wait_for(lambda: ready(bound) == 1, what="a message")
    api.status = 404
    assert broker_for(app).count(queue) == Count(1, None, 0)


def test_a_queue_that_is_not_there_holds_nothing(celery_env: Environment, queue: str) -> None:
    assert broker_for(app).count(queue) == Count(0, 0, 0)


def test_counting_changes_nothing(celery_env: Environment, bound: Any, api: Api, queue: str) -> None:
    publish(bound, 2)
    wait_for(lambda: ready(bound) == 2, what="two messages")
    api.queues = [{"name": queue, **EMPTY}]
    broker = broker_for(app)
    broker.queues()
    broker.count(queue)
    with pytest.raises(Unreadable):
        broker.find(["id"], [queue])

    first, second = bound.get(), bound.get()
    assert [message.payload["number"] for message in (first, second)] == [0, 1]
    assert not any(message.delivery_info["redelivered"] for message in (first, second))
    assert not first.headers.get("x-delivery-count")
    first.ack()
    second.ack()


@pytest.mark.parametrize(
    "ask", [lambda broker, queue: broker.messages(queue), lambda broker, queue: broker.unacked()]
)
def test_messages_cannot_be_listed(
    celery_env: Environment, queue: str, ask: Callable[[RabbitBroker, str], object]
) -> None:
    with pytest.raises(Unreadable, match="cannot be looked at without taking them"):
        ask(RabbitBroker(app), queue)


# The proof that there is nothing


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a search would have waited between its two looks."""
    waited: list[float] = []
    monkeypatch.setattr(rabbitmq.time, "sleep", waited.append)
    return waited


def test_an_id_is_gone_when_nothing_is_there_in_two_looks(
    celery_env: Environment, bound: Any, api: Api, queue: str, waited: list[float]
) -> None:
    api.queues = [{"name": queue, **EMPTY}]

    found = broker_for(app).find(["a", "b"], [queue, "no-such-queue"], patience=STALE)
    assert (found.seen, found.missing) == ({}, {"a", "b"})
    assert (waited, len(api.asked)) == ([STALE], 2)


def test_what_comes_between_the_two_looks_is_seen(
    celery_env: Environment, bound: Any, api: Api, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.queues = [{"name": queue, **EMPTY}]

    def meanwhile(seconds: float) -> None:
        api.queues[0]["messages_unacknowledged"] = 1

    monkeypatch.setattr(rabbitmq.time, "sleep", meanwhile)
    with pytest.raises(Unreadable, match=f"'{queue}' holds 0 waiting and 1 unacked messages"):
        broker_for(app).find(["id"], [queue], patience=STALE)


def test_less_patience_than_the_counts_are_old_is_no_proof(
    celery_env: Environment, bound: Any, api: Api, queue: str, waited: list[float]
) -> None:
    api.queues = [{"name": queue, **EMPTY}]
    with pytest.raises(Unreadable, match="give patience=15"):
        broker_for(app).find(["id"], [queue], patience=STALE - 1)
    assert waited == []


def test_a_waiting_message_that_the_api_has_not_heard_of(
    celery_env: Environment, bound: Any, api: Api, queue: str
) -> None:
    publish(bound)
    wait_for(lambda: ready(bound) == 1, what="a message")
    api.queues = [{"name": queue, **EMPTY}]
    with pytest.raises(Unreadable, match=f"'{queue}' holds 1 waiting and 0 unacked messages"):
        broker_for(app).find(["id"], [queue], patience=STALE)


@pytest.mark.parametrize("numbers", [{}, {"messages_ready": 0}, {**EMPTY, "messages_unacknowledged": None}])
def test_a_queue_that_has_not_reported_yet(
    celery_env: Environment, bound: Any, api: Api, queue: str, numbers: dict[str, Any]
) -> None:
    """A new queue is in the list without numbers for some seconds."""
    api.queues = [{"name": queue, **numbers}]
    with pytest.raises(Unreadable, match=f"'{queue}' has not reported yet to the management API"):
        broker_for(app).find(["id"], [queue], patience=STALE)


def test_a_queue_that_the_api_does_not_list(celery_env: Environment, bound: Any, queue: str) -> None:
    with pytest.raises(Unreadable, match=f"'{queue}' has not reported yet to the management API"):
        broker_for(app).find(["id"], [queue], patience=STALE)


def test_no_ids_need_no_proof(celery_env: Environment, api: Api, queue: str) -> None:
    assert broker_for(app).find([], [queue]).missing == frozenset()
    assert api.asked == []


# Native delayed delivery


@pytest.fixture
def levels(channel: Any) -> Iterator[str]:
    """The 28 levels, under a prefix of this test; deleted at the end."""
    if kombu.VERSION < (5, 7):
        pytest.skip("kombu makes levels with a prefix since 5.7")
    prefix = f"jobdedup-test-{secrets.token_hex(4)}"
    declare_native_delayed_delivery_exchanges_and_queues(channel.connection.client, "classic", prefix)
    yield prefix
    for level in range(28):
        channel.queue_delete(f"{prefix}_celery_delayed_{level}")
        channel.exchange_delete(f"{prefix}_celery_delayed_{level}")
    channel.exchange_delete(f"{prefix}_celery_delayed_delivery")


def test_a_message_in_a_delayed_level_is_counted_and_forbids_the_proof(
    celery_env: Environment, api: Api, queue: str, levels: str, channel: Any
) -> None:
    api.queues = [{"name": f"{levels}_celery_delayed_{level}", **EMPTY} for level in range(28)]
    level = f"{levels}_celery_delayed_9"
    assert set(broker_for(app).queues()) == {*app.amqp.queues, *(there["name"] for there in api.queues)}
    key = calculate_routing_key(600, queue)
    Producer(channel).publish({"number": 0}, exchange=f"{levels}_celery_delayed_27", routing_key=key)
    wait_for(lambda: broker_for(app).count(level).ready == 1, what="the message in its level")

    with pytest.raises(Unreadable, match=f"'{level}' holds 1 waiting and 0 unacked messages"):
        broker_for(app).find(["id"], [queue], patience=STALE)


def test_without_the_api_the_levels_are_asked_for_by_name(
    celery_env: Environment, api: Api, queue: str, channel: Any, monkeypatch: pytest.MonkeyPatch, levels: str
) -> None:
    api.status = 500
    monkeypatch.setattr(rabbitmq, "level_name", lambda level: f"{levels}_celery_delayed_{level}")
    there = {f"{levels}_celery_delayed_{level}" for level in range(28)}
    assert set(broker_for(app).queues()) == {*app.amqp.queues, *there}
    channel.queue_delete(f"{levels}_celery_delayed_27")
    assert set(broker_for(app).queues()) == set(app.amqp.queues)


# The API does not answer

ADVICE = r"RabbitMQ does not tell how many messages workers hold: .* {}.*rabbitmq-plugins enable"


@pytest.mark.parametrize(
    ("status", "queues", "said"),
    [
        (401, [], "it answered 401 Unauthorized"),
        (404, [], "it answered 404 Not Found"),
        (200, b"<html>", "Expecting value"),
        (200, {"error": "x"}, "it answered {'error': 'x'}"),
        (200, [{"nameless": 1}], r"it answered \[{'nameless': 1}\]"),
    ],
)
def test_an_api_that_does_not_tell(
    celery_env: Environment, bound: Any, api: Api, queue: str, status: int, queues: Any, said: str
) -> None:
    api.status, api.queues = status, queues
    with pytest.raises(Unreadable, match=ADVICE.format(said)):
        broker_for(app).find(["id"], [queue], patience=STALE)


def test_no_api_at_all(celery_env: Environment, queue: str) -> None:
    options = {**celery_env.celery["broker_transport_options"], "manager_port": 1}
    there = celery_env.having(celery={"broker_transport_options": options}).entered(app)
    with there, pytest.raises(Unreadable, match=ADVICE.format("refused")) as caught:
        broker_for(app).find(["id"], [queue], patience=STALE)
    assert "word" not in str(caught.value).replace("password", "")


def test_a_server_that_is_down(celery_env: Environment, queue: str) -> None:
    with celery_env.having(celery={"broker_url": "amqp://guest:secret@127.0.0.1:1//"}).entered(app):
        for ask in (lambda b: b.queues(), lambda b: b.count(queue), lambda b: b.find(["id"], [queue])):
            with pytest.raises(Unreadable, match=r"cannot be read: .*refused") as caught:
                ask(broker_for(app))
            assert "secret" not in str(caught.value)


# The real API

MANAGEMENT = os.environ.get("AMQP_MANAGEMENT_URL", f"http://{urlsplit(URL).hostname}:15672")


def test_the_real_api_tells_what_a_consumer_holds(celery_env: Environment, bound: Any, queue: str) -> None:
    place = urlsplit(MANAGEMENT)
    if not listens(MANAGEMENT):
        pytest.skip(f"no management API at {place.netloc} (AMQP_MANAGEMENT_URL)")
    there = {
        "manager_hostname": place.hostname,
        "manager_port": place.port,
        "manager_userid": "",
        "manager_password": "",
    }
    publish(bound, 2)
    wait_for(lambda: ready(bound) == 2, what="two messages")
    message = bound.get()
    with celery_env.having(celery={"broker_transport_options": there}).entered(app):
        broker = broker_for(app)
        wait_for(lambda: broker.count(queue).unacked == 1, 2 * STALE, every=0.5, what="the unacked message")
        assert broker.count(queue).ready == 1
        with pytest.raises(Unreadable, match="holds 1 waiting and 1 unacked"):
            broker.find(["id"], [queue], patience=STALE)
    message.requeue()
