"""A message that cannot be sent is to blame itself, whatever class its error has: the broker answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from django_jobdedup.dispatching import outbox
from django_jobdedup.dispatching.broker import DOWN, breaker_of, is_down, publish
from django_jobdedup.stores.durable import Intent
from django_jobdedup.stores.record import Ref
from testproject.celery import app
from tests.jobs import tasks

from .conftest import Base


@pytest.fixture(autouse=True)
def answering() -> Iterator[None]:
    """A broker of which nobody knows anything bad."""
    breaker_of(app).worked()
    yield
    breaker_of(app).worked()


@pytest.mark.usefixtures("soon")
def test_an_unknown_compression_holds_up_no_other_row(base: Base) -> None:
    """kombu raises OperationalError for it, as for a broker that is down."""
    with base.interrupted():
        tasks.until_executed.apply_async(("bad",), compression="nope")
        good = [tasks.until_executed.delay(f"good{n}") for n in range(3)]
    done = base.relay(4)
    assert [sent.what for sent in done] == ["failed", "published", "published", "published"]
    assert "nope" in done[0].reason
    assert base.sent() == [result.id for result in good]
    assert not breaker_of(app).refuses()


def test_after_the_commit_it_holds_up_no_other_call(base: Base) -> None:
    with base.atomic():
        tasks.until_executed.apply_async(("bad",), compression="nope")
        good = tasks.until_executed.delay("good")
    assert base.sent() == [good.id]
    assert not breaker_of(app).refuses()


def test_in_autocommit_its_caller_hears_of_it(base: Base) -> None:
    with pytest.raises(OperationalError, match="nope"):
        tasks.until_executed.apply_async(("bad",), compression="nope")
    assert tasks.until_executed.delay("good").outcome == "accepted"
    assert len(base.sent()) == 1


@pytest.mark.parametrize("error", [FileNotFoundError("keys.json"), PermissionError("keys.json")])
def test_a_file_is_no_broker(base: Base, error: Exception) -> None:
    def way(*args: Any, **options: Any) -> Any:
        raise error

    call = outbox.restore(app, "default", _intent(base)).call
    with pytest.raises(type(error)) as raised:
        publish(app, call, way)
    assert not is_down(raised.value)


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError(), OSError(5, "input/output error")])
def test_a_lost_connection_is_the_brokers_although_it_answers_again(base: Base, error: Exception) -> None:
    def way(*args: Any, **options: Any) -> Any:
        raise error

    call = outbox.restore(app, "default", _intent(base)).call
    with pytest.raises(DOWN) as raised:
        publish(app, call, way)
    assert is_down(raised.value)


def _intent(base: Base) -> Intent:
    """Give a call as a store keeps it."""
    tasks.until_executed.delay("a")
    (row,) = base.rows()
    assert row.call is not None
    return Intent(Ref(row.shard, row.fingerprint), row.token, 0, row.name, bytes(row.call), decided=True)
