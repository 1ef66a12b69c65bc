"""``dispatch_many`` over a store that keeps calls."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from kombu import Connection

from django_jobdedup import BulkError, StoredCallError, dispatch_many
from django_jobdedup.dispatching.broker import breaker_of
from testproject.celery import app
from testproject.embedded_redis import free_port
from tests.jobs import tasks

from . import work
from .conftest import Base


def test_calls_are_kept_with_their_seats_in_a_few_statements(base: Base) -> None:
    signatures = [work.count.s(number) for number in range(100)]
    with CaptureQueriesContext(connections[base.using]) as asked:
        done = dispatch_many(signatures)
    assert [str(each.outcome) for each in done] == ["accepted"] * 100
    assert base.sent() == [each.id for each in done]
    assert base.states() == ["published"] * 100
    assert len(asked) <= 10, [each["sql"][:80] for each in asked]


def test_equal_calls_are_one_row(base: Base) -> None:
    done = dispatch_many(work.count.s(number % 2) for number in range(6))
    assert [str(each.outcome) for each in done] == ["accepted"] * 2 + ["suppressed"] * 4
    assert [each.id for each in done] == [done[0].id, done[1].id] * 3
    assert base.sent() == [done[0].id, done[1].id]


def test_in_a_transaction_all_are_written_at_once_and_decided_after_the_commit(base: Base) -> None:
    with base.atomic():
        with CaptureQueriesContext(connections[base.using]) as asked:
            done = dispatch_many([*(work.count.s(number % 5) for number in range(10)), tasks.plain.s("x")])
        assert [each.outcome for each in done[:10]] == ["deferred"] * 10
        assert len(asked) == 1, "one insert"
        assert base.actions() == 1
        assert base.sent() == [done[10].id], "a task without a policy goes at once"
    assert [str(each.outcome) for each in done[:10]] == ["accepted"] * 5 + ["suppressed"] * 5
    assert base.sent() == [done[10].id, *(each.id for each in done[:5])]


def test_a_rollback_takes_them_all(base: Base) -> None:
    with base.failing():
        dispatch_many(work.count.s(number) for number in range(5))
    assert base.rows() == []
    assert base.sent() == []


def test_a_broker_that_is_down_costs_no_call_anything(base: Base, settings: Any, soon: None) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    reachable = app.conf.broker_write_url
    app.conf.broker_write_url, app.conf.broker_url = nowhere, nowhere
    app._pool = app.amqp._producer_pool = None
    try:
        done = dispatch_many(work.count.s(number) for number in range(3))
    finally:
        app.conf.broker_write_url, app.conf.broker_url = None, reachable
        app._pool = app.amqp._producer_pool = None
    assert [str(each.outcome) for each in done] == ["accepted"] * 3
    assert base.sent() == []
    assert [each.what for each in base.relay(3)] == ["published"] * 3
    assert sorted(base.sent()) == sorted(each.id for each in done)


def test_a_call_that_cannot_be_stored_stops_the_batch_before_anything_is_written(base: Base) -> None:
    with Connection("memory://") as own, pytest.raises(StoredCallError):
        dispatch_many([work.count.s(1), work.count.s(2).set(connection=own)])
    assert base.rows() == []
    assert base.sent() == []


def test_a_message_that_cannot_be_sent_leaves_no_other_to_the_relay(base: Base) -> None:
    """The broker answers, so it is not to blame: the others are out at once."""
    bad = tasks.until_executed.s("bad").set(compression="nope")
    with pytest.raises(BulkError) as caught:
        dispatch_many([work.count.s(1), bad, work.count.s(2)])
    first, none, last = caught.value.results
    assert (list(caught.value.errors), none) == ([1], None)
    assert "nope" in str(caught.value.errors[1])
    assert base.sent() == [first.id, last.id]
    assert {row.token for row in base.rows() if row.seat} == {first.id, last.id}
    assert not breaker_of(app).refuses()
