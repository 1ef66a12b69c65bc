"""``peek``, ``release`` and ``cancel`` over a store that keeps calls."""

from __future__ import annotations

import pytest
from celery.result import AsyncResult

from django_jobdedup import cancel, peek, release

from . import work
from .conftest import Base

#: Celery's own way to store a result.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex")


def test_a_kept_call_is_seen_and_called_off_by_its_id(base: Base) -> None:
    result = work.count.apply_async((1,), queue="nobody")
    found = peek(work.count, 1)
    assert found is not None
    assert [(each.id, each.state) for each in found.waiting] == [(result.id, "waiting")]
    assert cancel(result.id) == (result.id,)
    assert peek(work.count, 1) is None
    assert AsyncResult(result.id).state == "REVOKED"
    assert work.count.apply_async((1,), queue="nobody").outcome == "accepted"


def test_a_cancelled_call_is_never_published_by_the_relay(base: Base, soon: None) -> None:
    result = work.count.apply_async((1,), queue="nobody")
    cancel(result.id)
    assert base.relay(0) == []
    assert base.sent("nobody") == [result.id]


def test_a_deferred_call_is_called_off_before_and_after_its_commit(base: Base) -> None:
    with base.atomic():
        result = work.count.delay(1)
        assert cancel(result) == (result.id,)
    assert base.sent() == []
    with base.atomic():
        second = work.count.delay(1)
    assert base.sent() == [second.id]
    assert cancel(second) == (second.id,)
    assert peek(work.count, 1) is None


def test_a_waiting_row_is_released(base: Base) -> None:
    result = work.count.apply_async((1,), queue="nobody")
    assert [each.id for each in release(work.count.s(1))] == [result.id]
    assert peek(work.count, 1) is None


def test_an_observed_call_waits_for_no_commit_and_leaves_no_row(base: Base) -> None:
    options = {"queue": "nobody", "unique": {"observe": True}}
    with base.atomic():
        inside = work.count.apply_async((1,), **options)
        assert inside.outcome == "observed"
        assert base.sent("nobody") == [inside.id]
    outside = [work.count.apply_async((1,), **options) for _ in range(2)]
    assert [each.outcome for each in outside] == ["observed"] * 2
    assert len(base.sent("nobody")) == 3
    assert peek(work.count, 1) is None
    assert work.count.apply_async((1,), queue="nobody").outcome == "accepted"
