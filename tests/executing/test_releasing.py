"""How long an ended id is remembered, and what becomes of a seat whose body never began."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_jobdedup.call import Call, Execution, Running, running
from django_jobdedup.header import Header, Knobs
from django_jobdedup.middleware.base import NotStarted
from django_jobdedup.middleware.locking import LockingMiddleware
from django_jobdedup.middleware.planning import plan
from django_jobdedup.middleware.releasing import SHORT_MARKER, marker_life
from django_jobdedup.outcomes import Start
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record, Ref
from django_jobdedup.stores.results import Claimed

from . import tasks

NOW = 1_800_000_000.0
VISIBILITY = 3600.0
LONG = 2 * VISIBILITY


def _execution(
    at: float = NOW, ttl: float = 60.0, merges: bool = False, copies: float = 0.0, **facts: Any
) -> Execution:
    knobs = Knobs(ttl=ttl, on_waiting="merge" if merges else "keep")
    header = Header("id", 3, (("f" * 64, knobs),), at=at, copies=copies)
    return Execution("task", "id", header, "nonce", visibility=VISIBILITY, **facts)


@pytest.mark.parametrize(
    ("execution", "expected"),
    [
        (_execution(), SHORT_MARKER),
        (_execution(at=NOW - VISIBILITY / 2 - 1), LONG),
        (_execution(redelivered=True), LONG),
        (_execution(late_for=LONG), LONG),
        (_execution(at=0.0, far=True), LONG),
        (_execution(at=0.0), SHORT_MARKER),
        (_execution(late_for=LONG, ttl=3 * VISIBILITY), 3 * VISIBILITY),
        (_execution(ttl=3 * VISIBILITY), SHORT_MARKER),
        (_execution(merges=True), LONG),
        (_execution(merges=True, copies=9 * VISIBILITY), 9 * VISIBILITY + LONG),
    ],
    ids=[
        "early ack",
        "waited long",
        "redelivered",
        "late ack",
        "eta without age",
        "no age",
        "long ttl",
        "long ttl, early",
        "merged calls",
        "brought forward by a merged call",
    ],
)
def test_an_ended_id_is_remembered_for_as_long_as_a_copy_may_come(
    execution: Execution, expected: float
) -> None:
    """A copy that was made before the end waits in the queue as any message does, at most for the TTL."""
    assert marker_life(execution, Claimed(fence=1, at=NOW)) == expected


@pytest.mark.parametrize(("ahead", "expected"), [(VISIBILITY / 3, SHORT_MARKER), (VISIBILITY, LONG)])
def test_a_sender_whose_clock_is_ahead_hides_no_age(ahead: float, expected: float) -> None:
    """Its message seems to come from the future; it may have waited for as long as the clock is ahead."""
    assert marker_life(_execution(at=NOW + ahead), Claimed(fence=1, at=NOW)) == expected


def test_a_run_without_a_running_seat_has_no_age() -> None:
    assert marker_life(_execution(at=NOW - 10 * VISIBILITY), None) == SHORT_MARKER


def test_a_lock_that_asks_no_store_at_dispatch_tells_the_age_of_its_message_by_the_own_clock() -> None:
    """Else copies of a message that waited longer than the visibility timeout could not be told."""
    policy = Unique("while_executing", key="key")
    call = Call("task", "id", args=("a",), policy=policy, task_object=tasks.mutex)
    header = plan(call).header
    assert header is not None
    assert abs(header.at - time.time()) < 5


# A layer between the claim and the body ------------------------------------------------------------


@pytest.fixture
def started() -> Iterator[Running]:
    """An execution that is about to start, over a store in memory."""
    memory = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}
    with override_settings(JOBDEDUP_STORES=memory):
        current = Running(_execution(late_for=LONG))
        mark = running.set(current)
        try:
            yield current
        finally:
            running.reset(mark)


def _record() -> Record | None:
    record = stores["default"].inspect(Ref(3, "f" * 64), "id")
    assert record is None or isinstance(record, Record)
    return record


def _stop_with(error: BaseException, execution: Execution) -> None:
    def layer(_: Execution) -> None:
        record = _record()
        assert record is not None
        assert record.holders[0].state == "R"
        raise error

    with pytest.raises(type(error)):
        LockingMiddleware().execute(execution, layer)


@pytest.mark.parametrize(
    "error", [RuntimeError("a layer of the user"), NotStarted(Start.SUPPRESSED, by="other")]
)
def test_a_layer_that_raises_before_the_body_frees_the_seat(started: Running, error: Exception) -> None:
    """With late ack nothing else would, for hours."""
    _stop_with(error, started.execution)
    record = _record()
    assert record is not None
    assert record.holders == ()
    assert record.marker is not None
    assert record.marker.final


def test_a_layer_that_puts_the_job_off_keeps_its_waiting_seat(started: Running) -> None:
    """The message of the same id that comes next is not taken for a copy."""
    _stop_with(NotStarted(Start.PUT_OFF, after=1.0), started.execution)
    record = _record()
    assert record is not None
    assert [holder.state for holder in record.holders] == ["W"]
    assert record.marker is None
