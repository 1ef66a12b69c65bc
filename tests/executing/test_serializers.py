"""Web and worker agree on the key, whatever the wire makes of the values (case U35)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from kombu.exceptions import EncodeError

from django_jobdedup import Reschedule
from django_jobdedup.header import HEADER
from testproject.celery import app
from tests.dispatching.looking import holders
from tests.rig.environment import Environment, new_namespace
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import tasks
from .conftest import IMPORTS, send_raw
from .remains import LockKeys

pytestmark = pytest.mark.worker


class Colour(StrEnum):
    """An enum that is a text."""

    RED = "red"


NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
VALUES = {
    "nested tuple": (1, (2,)),
    "int keys": {1: "a", 2: {3: "b"}},
    "none key": {None: 1},
    "uuid": uuid.UUID(int=7),
    "decimal": Decimal("1.50"),
    "utc": NOON,
    "another zone": (NOON + timedelta(minutes=1)).astimezone(timezone(timedelta(hours=2))),
    "text enum": Colour.RED,
    "bytes": b"\x00\xff",
    "float": 1.25,
    "big int": 2**70,
    "accents": "é\u0301\U0001f600",
}
SERIALIZERS = ("json", "pickle", "yaml", "msgpack")
REFUSES = {
    ("yaml", "uuid"), ("yaml", "decimal"), ("yaml", "text enum"),
    ("msgpack", "uuid"), ("msgpack", "decimal"), ("msgpack", "utc"), ("msgpack", "another zone"),
    ("msgpack", "big int"),
}  # fmt: skip
"""What a serializer cannot encode: an error for the caller, before and without us."""

UNREADABLE = {("msgpack", "int keys"), ("msgpack", "none key")}
"""What msgpack encodes and then refuses to decode: the worker throws the message away."""

LATE = 0.5
"""How long the calls wait in the queue, and how long they run, seconds."""


@dataclass(slots=True)
class Sent:
    """One value through one serializer, sent by us and sent raw."""

    first: Any = None
    second: Any = None
    raw: Any = None
    beside_raw: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What was sent, and what is left in the store."""

    sent: dict[tuple[str, str], Sent]
    lock_keys: LockKeys
    worker: Worker


@pytest.fixture(scope="module")
def scene(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Send everything, side by side."""
    celery = {**IMPORTS, "accept_content": list(SERIALIZERS)}
    # Celery refuses to read pickle as root, as which tests run in containers.
    environment = Environment(
        new_namespace(), redis_server.url, celery=celery, variables={"C_FORCE_ROOT": "1"}
    )
    with environment.entered(app), ExitStack() as stack:
        worker = stack.enter_context(Worker(environment, tmp_path_factory.mktemp("wire"), concurrency=6))
        worker.wait_until_ready()
        lock_keys = stack.enter_context(closing(LockKeys(environment)))
        sent = {(serializer, name): Sent() for serializer in SERIALIZERS for name in VALUES}
        worker.pause()  # it frees the key of a message that it cannot read as soon as it sees it
        try:
            for place, one in sent.items():
                _send_twice(*place, one)
        finally:
            worker.resume()
        _send_raw_and_beside(sent, worker)
        yield Scene(sent, lock_keys, worker)
    environment.clean()


def _arguments(serializer: str, name: str, way: str) -> tuple[Any, ...]:
    return (VALUES[name], f"{serializer} {way}", LATE if way == "raw" else 0.0)


def _send_twice(serializer: str, name: str, one: Sent) -> None:
    options = {"args": _arguments(serializer, name, "ours"), "serializer": serializer, "countdown": LATE}
    try:
        one.first = tasks.keyed_by_value.apply_async(**options)
    except EncodeError as error:
        one.error = error
    else:
        one.second = tasks.keyed_by_value.apply_async(**options)


def _send_raw_and_beside(sent: dict[tuple[str, str], Sent], worker: Worker) -> None:
    """Send without the app; when the worker has received it, call with the app."""
    readable = {place: one for place, one in sent.items() if place not in REFUSES | UNREADABLE}
    for (serializer, name), one in readable.items():
        arguments = _arguments(serializer, name, "raw")
        one.raw = send_raw(tasks.keyed_by_value.name, *arguments, serializer=serializer, countdown=4)
    for (serializer, name), one in readable.items():
        wait_for(lambda: f"[{one.raw.id}] received" in worker.log, 10, every=0.05)  # noqa: B023
        time.sleep(0.02)
        arguments = _arguments(serializer, name, "raw")
        one.beside_raw = tasks.keyed_by_value.apply_async(arguments, serializer=serializer)


PLACES = [(serializer, name) for serializer in SERIALIZERS for name in VALUES]


@pytest.mark.parametrize(("serializer", "name"), PLACES)
def test_equal_calls_are_one_job_through_every_serializer(scene: Scene, serializer: str, name: str) -> None:
    one = scene.sent[serializer, name]
    assert (one.error is not None) == ((serializer, name) in REFUSES)
    if one.error is None:
        assert (one.first.duplicate, one.second.duplicate) == (False, True)
        assert one.second.id == one.first.id
        if (serializer, name) not in UNREADABLE:
            assert one.first.get(timeout=10) == "done"


@pytest.mark.parametrize(
    ("serializer", "name"),
    [p for p in PLACES if p not in REFUSES | UNREADABLE],
)
def test_a_message_without_header_gets_the_same_fingerprint_after_the_wire(
    scene: Scene, serializer: str, name: str
) -> None:
    one = scene.sent[serializer, name]
    assert one.beside_raw.duplicate, "the raw one holds the key"
    assert one.beside_raw.id == one.raw.id
    assert one.raw.get(timeout=10) == "done"


def test_two_instants_that_are_one_moment_are_one_call(scene: Scene) -> None:
    moment = NOON + timedelta(days=1)
    zones = [moment, moment.astimezone(timezone(timedelta(hours=-7)))]
    first, second = (tasks.keyed_by_value.apply_async((zone, "zones"), countdown=1) for zone in zones)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.get(timeout=10) == "done"


def test_the_key_in_the_header_is_freed_even_if_it_is_none_that_this_version_would_make(scene: Scene) -> None:
    """A message from an older or newer release: the worker frees by header and computes nothing."""
    id, fingerprint = "from-an-older-release", "0" * 64
    header = {"v": 1, "id": id, "s": 3, "k": [[fingerprint, {"e": 2}]]}
    raw = send_raw(tasks.keyed_by_value.name, "older", "", 0.5, task_id=id, headers={HEADER: header})
    wait_for(lambda: scene.lock_keys.life(fingerprint) > 0, 5, what="the lock under that fingerprint")
    assert raw.get(timeout=10) == "done"
    wait_for(lambda: scene.lock_keys.life(fingerprint) < 0, 2)


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_put_off_is_written_as_its_message_was(scene: Scene, compression: str | None) -> None:
    """No JSON carries a set; Celery's own signature of a delivery has forgotten the serializer."""
    word = f"put off {compression}"
    policy = {"lock": "while_executing", "key": "word", "on_conflict": Reschedule(after=0.3, up_to=0.6)}
    options = {"serializer": "pickle", "compression": compression, "unique": policy}
    first = tasks.keyed_by_value.apply_async((1, word, 2.0), **options)
    name = tasks.keyed_by_value.name
    wait_for(lambda: [holder.state for holder in holders(first, name)] == ["R"], 10, what="a run")
    second = tasks.keyed_by_value.apply_async(({1, 2}, word), **options)
    assert (first.get(timeout=10), second.get(timeout=10)) == ("done", "done")
    assert f"{second.id}] is put off behind job {first.id}" in scene.worker.log


def test_every_key_is_empty_afterwards(scene: Scene) -> None:
    """Also those whose message the worker could not read."""
    for one in scene.sent.values():
        for result in (one.first, one.raw):
            if result is not None and not _is_unreadable(scene, one):
                result.get(timeout=20)
    scene.lock_keys.wait_until_empty(10)


def _is_unreadable(scene: Scene, one: Sent) -> bool:
    return any(scene.sent[place] is one for place in UNREADABLE)
