"""A soft time limit that strikes while a body waits for what its commit has brought: it ends the body."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from django_jobdedup.dispatching import giving_up, inline, outbox
from django_jobdedup.middleware import refusing
from django_jobdedup.stores.durable import Intent
from django_jobdedup.stores.record import Ref
from tests.jobs import tasks

from .conftest import Base

pytestmark = pytest.mark.usefixtures("soon")


def strike(*_: Any, **__: Any) -> None:
    """What billiard raises in the main thread, wherever it is."""
    raise SoftTimeLimitExceeded


@pytest.mark.parametrize("where", ["restore", "decide", "publish", "announce"])
def test_it_reaches_the_body_and_the_relay_does_the_rest(
    base: Base, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(outbox, where, strike)
        with pytest.raises(SoftTimeLimitExceeded), base.atomic():
            first, second = tasks.until_executed.delay("a"), tasks.until_executed.delay("b")
    pending = base.states().count("pending")
    if pending:
        base.relay(pending)
    assert base.sent() == [first.id, second.id]
    assert base.states() == ["published"] * 2


@pytest.mark.parametrize("verb", ["take", "acquire_many", "confirm"])
def test_so_does_one_that_strikes_while_the_store_is_asked(
    base: Base, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(base.store), verb, strike)
        with pytest.raises(SoftTimeLimitExceeded), base.atomic():
            result = tasks.until_executed.delay("a")
    base.relay()
    assert set(base.sent()) == {result.id}
    assert base.states() == ["published"]


def test_and_one_that_strikes_in_a_strategy(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks.until_executed.delay("a")
    with monkeypatch.context() as patch:
        patch.setattr(refusing, "checked", strike)
        with pytest.raises(SoftTimeLimitExceeded), base.atomic():
            tasks.until_executed.delay("a")
    base.relay()
    assert base.states() == ["published", "superseded"]


def test_and_one_that_strikes_while_a_waiter_is_told(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_up, "_is_kept", strike)
    intent = Intent(Ref(0, "0" * 64), "a", 0, "shop", b"", decided=True)
    with pytest.raises(SoftTimeLimitExceeded):
        giving_up.tell(tasks.until_executed.app, base.store, intent, "why")


def test_in_autocommit_the_call_is_taken_back(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "publish", strike)
    with pytest.raises(SoftTimeLimitExceeded):
        tasks.until_executed.delay("a")
    assert base.states() == ["failed"]
