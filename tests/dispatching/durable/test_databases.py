"""Which transaction a call waits for: that of the database of its task's store, and no other (case U24)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.handlers.base import BaseHandler
from django.core.management import BaseCommand, call_command
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import TestCase, override_settings

from tests.dispatching.looking import messages
from tests.jobs import tasks
from tests.rig.engines import BACKEND, Engines
from tests.rig.environment import Environment

from .conftest import Base


@pytest.fixture
def other(engines: Engines, base: Base, settings: Any) -> Iterator[str]:
    """A second database with a store of its own, ``orders``; gives its alias."""
    with engines.open("sqlite" if base.engine.name == "sqlite_wal" else "sqlite_wal") as engine:
        orders = {"BACKEND": BACKEND, "LOCATION": engine.alias}
        settings.JOBDEDUP_STORES = {**base.engine.stores, "orders": orders}
        yield engine.alias


ORDERS = {"store": "orders"}


def test_the_store_of_the_policy_names_the_transaction(base: Base, other: str) -> None:
    """A task on the orders' store waits for the orders' commit, with or without one on the default."""
    with base.atomic(), transaction.atomic(using=other):
        result = tasks.until_executed.apply_async(("a",), unique=ORDERS)
        assert result.outcome == "deferred"
    assert base.sent() == [result.id]
    with transaction.atomic(using=other):
        second = tasks.until_executed.apply_async(("b",), unique=ORDERS)
        assert second.outcome == "deferred"
    assert base.sent() == [result.id, second.id]
    assert base.rows() == []


def test_each_database_decides_at_its_own_commit(base: Base, other: str) -> None:
    """Of two transactions, each has its calls."""
    with base.atomic():
        with transaction.atomic(using=other):
            inner = tasks.until_executed.apply_async(("a",), unique=ORDERS)
            outer = tasks.until_executed.delay("a")
        assert base.sent() == [inner.id]
    assert base.sent() == [inner.id, outer.id]


def test_a_transaction_of_another_database_is_warned_of(
    base: Base, other: str, settings: Any, log: pytest.LogCaptureFixture
) -> None:
    """A call cannot wait for a commit that its store does not see; for its own there is nothing to say."""
    settings.DEBUG = True
    with base.atomic():
        assert tasks.until_executed.delay("a").outcome == "deferred"
    assert "inside an open transaction" not in log.text
    with transaction.atomic(using=other):
        assert tasks.until_executed.delay("b").outcome == "accepted"
    assert "inside an open transaction" in log.text


def test_a_request_is_a_transaction(base: Base) -> None:
    """Under ATOMIC_REQUESTS the view's calls go out when it has returned."""
    seen: list[Any] = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append(tasks.until_executed.delay("a"))
        assert base.sent() == []
        return HttpResponse()

    connections[base.using].settings_dict["ATOMIC_REQUESTS"] = True
    try:
        BaseHandler().make_view_atomic(view)(HttpRequest())
    finally:
        connections[base.using].settings_dict["ATOMIC_REQUESTS"] = False
    assert base.sent() == [seen[0].id]


class Command(BaseCommand):
    """A management command that works in a transaction, as most do."""

    def add_arguments(self, parser: Any) -> None:
        """Take the alias of the database."""
        parser.add_argument("--using")

    def handle(self, **options: Any) -> None:
        """Call in a transaction."""
        with transaction.atomic(using=options["using"]):
            result = tasks.until_executed.delay("a")
            assert result.outcome == "deferred"


def test_a_management_command(base: Base) -> None:
    """There is no request and no response there, and it makes no difference."""
    call_command(Command(), using=base.using)
    assert base.states() == ["published"]
    assert len(base.sent()) == 1


def test_transactions_by_hand_are_left_to_the_relay(base: Base, settings: Any) -> None:
    """With autocommit turned off Django tells nobody of a commit; the row does."""
    settings.JOBDEDUP_CONFIRM_WITHIN = 0.2
    transaction.set_autocommit(False, using=base.using)
    try:
        result = tasks.until_executed.delay("a")
        assert result.outcome == "deferred"
        transaction.commit(using=base.using)
    finally:
        transaction.set_autocommit(True, using=base.using)
    assert base.sent() == []
    assert [sent.what for sent in base.relay()] == ["published"]
    assert base.sent() == [result.id]


@override_settings(JOBDEDUP_STORES={"default": {"BACKEND": BACKEND}})
class InATestCase(TestCase):
    """Django's TestCase never commits; its own tool runs what waits for the commit."""

    @pytest.fixture(autouse=True)
    def _world(self, celery_env: Environment, redis_client: Any) -> None:
        self._where = redis_client, celery_env.namespace

    def sent(self) -> list[str]:
        """Give the ids of the messages that wait."""
        return [message["headers"]["id"] for message in messages(*self._where)]

    def test_nothing_is_sent_until_it_is_captured(self) -> None:
        result = tasks.until_executed.delay("a")
        assert result.outcome == "deferred"
        assert self.sent() == []

    def test_captured_callbacks_decide_and_publish(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            first, second = tasks.until_executed.delay("a"), tasks.until_executed.delay("a")
        assert len(callbacks) == 1
        assert self.sent() == [first.id]
        assert (first.outcome, second.outcome) == ("accepted", "suppressed")

    def test_a_second_capture_has_its_own(self) -> None:
        for number in range(2):
            with self.captureOnCommitCallbacks(execute=True):
                tasks.until_executed.delay(f"key-{number}")
        assert len(self.sent()) == 2

    def test_calls_made_on_commit_are_sent_as_well(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: tasks.until_executed.delay("a"))
        assert len(self.sent()) == 1
