"""Bodies are decoded on request only, and only by what the project accepts."""

from __future__ import annotations

import pickle
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from django_jobdedup.brokers.base import Broker
from django_jobdedup.brokers.content import Body
from django_jobdedup.brokers.handler import broker_for
from django_jobdedup.brokers.unreadable import Unreadable
from testproject.celery import app
from tests.rig.environment import Environment

from .hands import QUEUE, Hands

ALL = ["json", "yaml", "msgpack", "pickle"]
ARGUMENTS = ("first", 2, [3, None])
#: What Celery sends as the third part of a body.
EMBED = {"callbacks", "errbacks", "chain", "chord"}


@pytest.mark.environment(celery={"accept_content": ALL})
@pytest.mark.parametrize("serializer", ALL)
@pytest.mark.parametrize("compression", [None, "zlib", "bzip2"])
def test_a_body_is_decoded_by_its_serializer(
    broker: Broker, hands: Hands, serializer: str, compression: str | None
) -> None:
    hands.send("tests.brokers.job", *ARGUMENTS, serializer=serializer, compression=compression)

    (message,) = broker.messages(QUEUE)
    body = message.body()
    assert (body.args, body.kwargs, set(body.embed)) == (ARGUMENTS, {}, EMBED)


@pytest.mark.parametrize(
    ("serializer", "content_type"),
    [("yaml", "x-yaml"), ("msgpack", "x-msgpack"), ("pickle", "x-python-serialize")],
)
def test_a_body_of_a_type_that_is_not_accepted_stays_closed(
    broker: Broker, hands: Hands, serializer: str, content_type: str
) -> None:
    id = hands.send("tests.brokers.job", *ARGUMENTS, serializer=serializer)

    (message,) = broker.messages(QUEUE)
    assert (message.id, message.task) == (id, "tests.brokers.job")
    assert broker.find([id], [QUEUE]).missing == frozenset()
    with pytest.raises(Unreadable, match=f"application/{content_type}, which accept_content of the Celery"):
        message.body()


class Bomb:
    """An object whose unpickling leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("accepted", [["json"], ALL])
def test_nothing_is_unpickled_by_listing_and_finding(
    celery_env: Environment, hands: Hands, tmp_path: Path, accepted: list[str]
) -> None:
    trace = tmp_path / "exploded"
    with celery_env.having(celery={"accept_content": accepted}).entered(app):
        id = hands.send("tests.brokers.job", Bomb(trace), serializer="pickle")
        broker = broker_for(app)
        (message,) = broker.messages(QUEUE)
        assert broker.find([id, "gone"], [QUEUE]).missing == {"gone"}
        hands.take()
        assert [held.id for held in broker.unacked()] == [id]
        assert not trace.exists()
        if accepted == ["json"]:
            with pytest.raises(Unreadable):
                message.body()
            assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace)))  # the bomb is live
    assert trace.exists()


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"body": b64encode(b"[1, 2").decode()}, "cannot be decoded"),
        ({"body": b64encode(b"[[], {}]").decode()}, "cannot be decoded"),
        ({"body": "no base64 at all!"}, "cannot be decoded"),
        ({"body": ""}, "cannot be decoded"),
        ({"content-type": None}, "is of no type"),
        ({"headers": {"id": "x", "compression": "application/x-nobody"}}, "cannot be decoded"),
    ],
)
def test_a_broken_body_is_unreadable_and_its_headers_are_not(
    broker: Broker, hands: Hands, payload: dict[str, Any], said: str
) -> None:
    import json

    id = hands.send("tests.brokers.job", *ARGUMENTS)
    entry = json.loads(hands.client.lpop(hands.key()))
    if "headers" in payload:
        payload = {"headers": {**entry["headers"], **payload["headers"], "id": id}}
    hands.client.lpush(hands.key(), json.dumps({**entry, **payload}))

    (message,) = broker.messages(QUEUE)
    assert message.id == id
    with pytest.raises(Unreadable, match=said):
        message.body()


@pytest.mark.environment(celery={"broker_transport_options": {"body_encoding": None}})
def test_a_body_that_is_not_encoded_is_read_as_it_is(broker: Broker, hands: Hands) -> None:
    hands.send("tests.brokers.job", *ARGUMENTS)

    (message,) = broker.messages(QUEUE)
    assert message.body().args == ARGUMENTS


def test_a_message_without_content_has_no_body() -> None:
    from django_jobdedup.brokers.message import Message, Place

    with pytest.raises(Unreadable, match="is of no type"):
        Message("id", "task", QUEUE, Place.QUEUE).body()
    assert Body((), {}).embed == {}
