"""Where a message lies in Redis: lists by priority, ``unacked``, other people's entries between."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from kombu import Exchange, Queue

from django_jobdedup.brokers.base import Broker
from django_jobdedup.brokers.found import Count, Sighting
from django_jobdedup.brokers.handler import broker_for
from django_jobdedup.brokers.message import Message, Place
from django_jobdedup.brokers.redis import closing
from testproject.celery import app
from tests.conftest import StartWorker
from tests.jobs import tasks
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.monitor import Monitor
from tests.rig.waiting import wait_for

from .hands import QUEUE, Hands

READING = {
    *("LRANGE", "LLEN", "HSCAN", "HKEYS", "HMGET", "SCAN", "SMEMBERS"),
    *("MULTI", "EXEC"),
}
"""The commands that a reading may send."""


def by_id(messages: Iterator[Message]) -> dict[str, Message]:
    return {message.id: message for message in messages}


@pytest.mark.parametrize(("priority", "step"), [(0, 0), (3, 3), (5, 3), (6, 6), (9, 9)])
def test_a_message_is_found_in_the_list_of_its_priority(
    broker: Broker, hands: Hands, priority: int, step: int
) -> None:
    id = hands.send(priority=priority)

    place = Place.PRIORITY_LIST if step else Place.QUEUE
    assert broker.find([id], [QUEUE]).seen == {id: (Sighting(place, QUEUE, step),)}
    (message,) = broker.messages(QUEUE)
    assert (message.id, message.priority, message.place) == (id, priority, place)


@pytest.mark.environment(celery={"broker_transport_options": {"priority_steps": [0, 5], "sep": ":"}})
def test_priority_steps_and_separator_are_those_of_the_transport_options(
    broker: Broker, hands: Hands
) -> None:
    ids = [hands.send(priority=priority) for priority in (4, 7)]

    assert hands.client.exists(f"{hands.prefix}celery:5")
    places = broker.find(ids, [QUEUE]).seen
    assert [place.priority for (place,) in places.values()] == [0, 5]
    assert broker.count(QUEUE) == Count(2)


def test_a_queue_is_counted_and_listed_over_all_priorities(broker: Broker, hands: Hands) -> None:
    ids = {hands.send(priority=priority) for priority in (0, 3, 5, 6, 9)}

    assert broker.count(QUEUE) == Count(5)
    assert set(by_id(broker.messages(QUEUE))) == ids
    assert broker.count("nowhere") == Count(0)


def test_within_a_priority_the_newest_comes_first(broker: Broker, hands: Hands) -> None:
    ids = [hands.send() for _ in range(40)]

    assert [message.id for message in broker.messages(QUEUE)] == ids[::-1]


def test_a_message_of_another_prefix_is_not_seen(broker: Broker, hands: Hands) -> None:
    id = hands.send()
    with Environment(new_namespace(), redis_url()).entered(app):
        assert broker_for(app).find([id], [QUEUE]).missing == {id}
        assert broker_for(app).count(QUEUE) == Count(0)
    assert broker.find([id], [QUEUE]).missing == frozenset()


def test_without_a_prefix_the_keys_are_bare(redis_client: redis.Redis, celery_env: Environment) -> None:
    name = celery_env.namespace
    bare = {"global_keyprefix": "", "unacked_key": f"{name}-held", "unacked_index_key": f"{name}-index"}
    with celery_env.having(celery={"broker_transport_options": bare}).entered(app), Hands(app) as hands:
        held, waiting = hands.send(queue=name), hands.send(queue=name)
        hands.take(name)
        assert redis_client.llen(name) == redis_client.hlen(f"{name}-held") == 1
        found = broker_for(app).find([held, waiting], [name])
        assert {id: place.place for id, (place,) in found.seen.items()} == {
            held: Place.UNACKED,
            waiting: Place.QUEUE,
        }


def test_the_database_is_that_of_the_broker_url(celery_env: Environment) -> None:
    there = celery_env.having(celery={"broker_url": f"{redis_url().rpartition('/')[0]}/5"})
    with there.entered(app), Hands(app) as hands:
        id = hands.send()
        assert broker_for(app).find([id], [QUEUE]).missing == frozenset()
        hands.client.delete(*hands.client.keys(f"{hands.prefix}*"))
    assert broker_for(app).find([id], [QUEUE]).missing == {id}


def redis_url() -> str:
    return str(app.conf.broker_url)


# What a message shows


def test_a_message_shows_what_stands_in_its_headers(broker: Broker, celery_env: Environment) -> None:
    eta = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    result = tasks.until_executed.apply_async(("secret",), eta=eta, queue="reports")

    (message,) = broker.messages("reports")
    assert (message.id, message.task, message.queue) == (result.id, tasks.until_executed.name, "reports")
    assert message.eta == eta
    assert message.header is not None
    assert message.header.fingerprint == result.fingerprint
    assert not message.redelivered
    assert "secret" not in repr(message)


def test_a_message_without_our_header_has_none(broker: Broker, hands: Hands) -> None:
    hands.send()

    (message,) = broker.messages(QUEUE)
    assert message.header is None


@pytest.mark.parametrize("id", ["nightly", "rück/1", 'a "quoted" one', "back\\slash", "new\nline", "日本"])
def test_an_id_of_the_callers_own_is_found(
    broker: Broker, hands: Hands, monkeypatch: pytest.MonkeyPatch, id: str
) -> None:
    """JSON spells some letters in more than one way, and no way may hide the message."""
    monkeypatch.setattr(closing, "WIDTH", 20)  # it lies too deep for the closing look
    for _ in range(30):
        hands.send()
    hands.send(task_id=id)
    raw = hands.client.lindex(hands.key(), 0)
    for _ in range(30):
        hands.send()

    assert broker.find([id, "gone"], [QUEUE]).missing == {"gone"}
    hands.client.lset(hands.key(), 30, raw.replace(b"/", b"\\/"))
    found = broker.find([id, "gone"], [QUEUE])
    assert (found.missing, found.read) == ({"gone"}, 61)


def test_an_id_that_others_name_is_not_seen_there(broker: Broker, hands: Hands) -> None:
    """A root or parent id names a job that is somewhere else."""
    hands.send(headers={"root_id": "root", "parent_id": "parent", "other": {"id": "other"}})

    assert broker.find(["root", "parent", "other"], [QUEUE]).missing == {"root", "parent", "other"}


def test_an_id_that_is_a_uuid_object_is_found_by_its_text(broker: Broker, hands: Hands) -> None:
    """Kombu writes such a header as an object of its own; the id stands elsewhere as text too."""
    id = hands.send()
    payload = json.loads(hands.client.lpop(hands.key()))
    payload["headers"]["id"] = {"__type__": "uuid", "__value__": {"hex": id.replace("-", "")}}
    hands.client.lpush(hands.key(), json.dumps(payload))

    assert broker.find([id], [QUEUE]).missing == frozenset()


def test_a_header_of_a_type_that_only_the_worker_knows_does_not_hide_the_message(
    broker: Broker, hands: Hands
) -> None:
    id = hands.send()
    payload = json.loads(hands.client.lpop(hands.key()))
    payload["headers"]["trace"] = {"__type__": "money", "__value__": "3 EUR"}
    hands.client.lpush(hands.key(), json.dumps(payload))

    found = broker.find([id], [QUEUE])
    assert (found.missing, found.foreign) == (frozenset(), 0)


@pytest.fixture
def protocol_1(celery_env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery keeps the protocol that ``task_protocol`` named at its first publish."""
    monkeypatch.setattr(app.amqp, "create_task_message", app.amqp.as_task_v1)


def test_a_message_of_protocol_1_is_found_by_its_id(protocol_1: None, broker: Broker, hands: Hands) -> None:
    id = hands.send("tests.brokers.old", 1, 2)

    assert broker.find([id], [QUEUE]).seen == {id: (Sighting(Place.QUEUE, QUEUE),)}
    (message,) = broker.messages(QUEUE)
    assert (message.id, message.task, message.eta) == (id, "", None)
    body = message.body()
    assert (body.args, body.kwargs) == ((1, 2), {})
    assert (body.embed["task"], body.embed["id"]) == ("tests.brokers.old", id)


def test_a_message_of_protocol_1_carries_our_header(protocol_1: None, broker: Broker) -> None:
    result = tasks.until_executed.delay("key")

    (message,) = broker.messages(QUEUE)
    assert message.header is not None
    assert message.header.fingerprint == result.fingerprint


# Entries of others

GARBAGE = [
    b"garbage",
    b"\xff\xfe\x00",
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"[" * 100_000,
    b'{"a": 1}',
    b'{"headers": 1, "properties": {}}',
    b'{"headers": {}, "properties": []}',
    b'{"headers": {}, "properties": {}}',
]


def test_entries_that_no_worker_can_read_are_counted_and_hide_nothing(broker: Broker, hands: Hands) -> None:
    ids = []
    for entry in GARBAGE:
        hands.client.lpush(hands.key(), entry)
        ids.append(hands.send())

    found = broker.find([*ids, "gone"], [QUEUE])
    assert (set(found.seen), found.missing) == (set(ids), {"gone"})
    assert (found.read, found.foreign) == (len(GARBAGE) * 2, len(GARBAGE))
    assert [message.raw for message in broker.messages(QUEUE) if not message.id] == GARBAGE[::-1]


def test_an_infinite_priority_hides_nothing(broker: Broker, hands: Hands) -> None:
    entry = b'{"headers": {"id": "odd"}, "properties": {"priority": 1e999}, "body": ""}'
    hands.client.lpush(hands.key(), entry)
    id = hands.send()

    found = broker.find(["odd", id, "gone"], [QUEUE])
    assert (set(found.seen), found.missing) == ({"odd", id}, {"gone"})


def test_a_binding_whose_pattern_is_none_hides_nothing(broker: Broker, hands: Hands) -> None:
    hands.client.sadd(f"{hands.prefix}_kombu.binding.broken", "\x06\x16".join(["x", "(", "elsewhere"]))
    hands.client.hset(
        f"{hands.prefix}unacked", "tag", b'[{"headers": {"id": "a"}, "properties": {}}, "broken", "y"]'
    )

    assert broker.find(["a"], [QUEUE]).missing == set()


def test_garbage_in_unacked_is_counted_and_hides_nothing(broker: Broker, hands: Hands) -> None:
    id = hands.send()
    hands.take()
    for number, entry in enumerate([*GARBAGE, b'["message", "exchange"]', b"[{}, 1, 2]"]):
        hands.client.hset(f"{hands.prefix}unacked", f"tag-{number}", entry)

    found = broker.find([id, "gone"], [QUEUE])
    assert (set(found.seen), found.missing) == ({id}, {"gone"})
    assert found.foreign == len(GARBAGE) + 2
    assert [message.id for message in broker.unacked() if message.id] == [id]


def test_an_id_that_a_broken_entry_names_is_not_gone(broker: Broker, hands: Hands) -> None:
    id = hands.send()
    hands.client.lpush(hands.key(), hands.client.lpop(hands.key())[:-5])

    found = broker.find([id], [QUEUE])
    assert (set(found.seen), found.foreign) == ({id}, 1)


# In workers' hands


@pytest.mark.worker
def test_what_a_busy_worker_holds_is_unacked(
    broker: Broker, celery_env: Environment, worker: StartWorker, journal: Journal
) -> None:
    running = tasks.plain_late.apply_async(("k", 30.0), queue="reports")
    prefetched = [tasks.plain.apply_async(("p",), queue="reports", priority=3) for _ in range(2)]
    eta = tasks.plain.apply_async(("e",), countdown=600, queue="reports")
    ids = [running.id, eta.id, *(result.id for result in prefetched)]
    node = worker(queues=["reports"], concurrency=1)
    try:
        journal.wait_for_runs(1, "k")
        wait_for(lambda: broker.count("reports").ready == 0, 10, what="everything received")
        held = {id: (Sighting(Place.UNACKED, "reports"),) for id in ids}
        wait_for(lambda: len(list(broker.unacked())) == 4, 10, what="everything noted")
        assert broker.find(ids, ["reports"]).seen == held
        messages = by_id(broker.unacked())
        assert messages[eta.id].eta is not None
        assert {message.queue for message in messages.values()} == {"reports"}
    finally:
        node.kill()


def test_the_queue_of_an_unacked_message_is_that_of_its_exchange(broker: Broker, hands: Hands) -> None:
    exchange = Exchange("planets", type="topic")
    Queue("inner", exchange, routing_key="planet.#")(hands.channel).declare()
    id = hands.send(queue=None, exchange=exchange, routing_key="planet.venus")
    hands.take("inner")

    assert broker.find([id], ["inner"]).seen == {id: (Sighting(Place.UNACKED, "inner"),)}


def test_an_unacked_message_whose_binding_is_gone_goes_by_its_routing_key(
    broker: Broker, hands: Hands
) -> None:
    exchange = Exchange("planets", type="topic")
    Queue("inner", exchange, routing_key="planet.#")(hands.channel).declare()
    Queue("outer", exchange, routing_key="moon.#")(hands.channel).declare()
    id = hands.send(queue=None, exchange=exchange, routing_key="planet.venus")
    hands.take("inner")
    table = f"{hands.prefix}_kombu.binding.planets"
    hands.client.srem(table, *(row for row in hands.client.smembers(table) if b"inner" in row))

    assert broker.find([id], ["inner"]).seen == {id: (Sighting(Place.UNACKED, "planet.venus"),)}


# Queues


@pytest.mark.environment(celery={"broker_transport_options": {"deadletter_queue": "unroutable"}})
def test_the_queue_for_what_has_no_route_is_known(broker: Broker) -> None:
    assert "unroutable" in broker.queues()


def test_all_queues_are_known_that_anybody_declared(broker: Broker, hands: Hands) -> None:
    """``find`` looks through them by default: another process may send where this one knows nothing of."""
    Queue("elsewhere", "elsewhere", routing_key="elsewhere")(hands.channel).declare()
    # What a worker declares for remote control and events, which are no jobs.
    for name in ("celery.pidbox", "reply.celery.pidbox", "celeryev"):
        Queue(f"node.{name}", Exchange(name, type="fanout"))(hands.channel).declare()
    id = hands.send(queue="elsewhere")

    del app.amqp.queues["elsewhere"]
    assert broker.queues() == (QUEUE, "elsewhere")
    assert broker.find([id]).seen == {id: (Sighting(Place.QUEUE, "elsewhere"),)}


def test_a_wildcard_in_the_prefix_is_a_letter(celery_env: Environment) -> None:
    prefix = f"{celery_env.namespace}[ab]*?:"
    options = {"broker_transport_options": {"global_keyprefix": prefix}}
    with celery_env.having(celery=options).entered(app), Hands(app) as hands:
        Queue("q", "q", routing_key="q")(hands.channel).declare()
        assert broker_for(app).queues() == (QUEUE, "q")


# Reading changes nothing


def dump(client: redis.Redis, prefix: str) -> dict[bytes, Any]:
    """Give every key of a world with its content and expiry."""
    return {key: (client.dump(key), client.pttl(key)) for key in client.scan_iter(f"{prefix}*")}


def test_reading_changes_nothing(broker: Broker, hands: Hands, monitor: Monitor) -> None:
    ids = [hands.send(priority=number % 10) for number in range(50)]
    hands.client.lpush(hands.key(), b"garbage")
    for _ in range(5):
        hands.take()
    before = dump(hands.client, hands.prefix)
    assert len(before) >= 6

    monitor.start()
    broker.queues()
    broker.count(QUEUE)
    assert len(list(broker.messages(QUEUE))) == 46
    assert len(list(broker.unacked())) == 5
    assert broker.find([*ids, "gone"]).missing == {"gone"}
    sent = monitor.stop()

    assert dump(hands.client, hands.prefix) == before
    assert {command.name for command in monitor.touching(hands.prefix)} <= READING
    assert sent


# Size


def test_a_reading_of_nothing_asks_nobody(broker: Broker, celery_env: Environment) -> None:
    with celery_env.having(celery={"broker_url": "redis://127.0.0.1:1/0"}).entered(app):
        assert broker_for(app).find([]).seen == {}


def fill(hands: Hands, thousands: int) -> int:
    """Put that many thousand messages with ids of their own into the queue; give the bytes of one."""
    hands.send()
    entry = hands.client.lpop(hands.key())
    id = json.loads(entry)["headers"]["id"].encode()
    entries = [entry.replace(id, f"{number:036}".encode()) for number in range(1000)]
    for _ in range(thousands):
        hands.client.lpush(hands.key(), *entries)
    return len(entry)


def test_the_memory_of_a_reading_is_that_of_a_batch(broker: Broker, hands: Hands) -> None:
    id = hands.send()
    size = fill(hands, 30)

    tracemalloc.start()
    try:
        found = broker.find([id, "gone"], [QUEUE])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (set(found.seen), found.missing, found.read) == ({id}, {"gone"}, 30_001)
    assert peak < 10 * 2**20 < 30_001 * size / 2


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_200_000_messages_are_read_in_batches(broker: Broker, hands: Hands, monitor: Monitor) -> None:
    id = hands.send()
    fill(hands, 200)
    assert broker.count(QUEUE) == Count(200_001)

    monitor.start()
    found = broker.find([id, "gone"], [QUEUE])
    monitor.stop()
    assert (set(found.seen), found.missing, found.read) == ({id}, {"gone"}, 200_001)
    ranges = [command.words for command in monitor.commands("LRANGE")]
    assert max(int(last) - int(first) for _, _, first, last in ranges) < 1000
    assert len(ranges) < 300


def test_large_messages_come_few_at_a_time(broker: Broker, hands: Hands, monitor: Monitor) -> None:
    ids = {hands.send("tests.brokers.large", "x" * 700_000) for _ in range(40)}

    monitor.start()
    assert {message.id for message in broker.messages(QUEUE)} == ids
    monitor.stop()
    (_, _, _, first), *others = [
        command.words for command in monitor.commands("LRANGE") if "\\x06" not in command.words[1]
    ]
    assert int(first) < 20
    assert {int(stop) - int(start) for _, _, start, stop in others} == {3}
