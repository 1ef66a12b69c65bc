"""What the caller of a deferred call holds: a final id, and the result of the job that covers it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from celery.exceptions import TimeoutError as ResultTimeout
from celery.result import AsyncResult

from django_jobdedup import Outcome, Suppressed, Undecided, job_of, outcome_of
from django_jobdedup.models import JobIntent
from testproject.celery import app
from tests.dispatching import jobs
from tests.dispatching.process import run_python
from tests.jobs import tasks

from .conftest import Base

# Celery's own way to store a result, taken here in the place of a worker's.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")


@pytest.fixture
def refused(base: Base) -> tuple[Any, Any]:
    """The results of two equal calls of one transaction: the accepted one, and the one it covers."""
    with base.atomic():
        first, second = tasks.until_executed.delay("a"), tasks.until_executed.delay("a")
    return first, second


def test_a_refused_call_speaks_for_the_job_that_covers_it(refused: tuple[Any, Any]) -> None:
    """Its id stays what it was; value, state and readiness are the holder's."""
    first, second = refused
    assert second.id != first.id
    assert (second.ready(), second.state, second.successful()) == (False, "PENDING", False)
    app.backend.store_result(first.id, "value", "SUCCESS")
    assert (second.ready(), second.state, second.result) == (True, "SUCCESS", "value")
    assert second.get(timeout=5) == second.wait(timeout=5) == "value"
    assert job_of(second).id == job_of(first).id == first.id


def test_a_failure_of_that_job_is_raised(refused: tuple[Any, Any]) -> None:
    """As it is to the caller whose job it was."""
    first, second = refused
    app.backend.store_result(first.id, LookupError("gone"), "FAILURE")
    with pytest.raises(LookupError, match="gone"):
        second.get(timeout=5)
    assert second.failed()
    assert isinstance(second.get(timeout=5, propagate=False), LookupError)


def test_an_accepted_call_speaks_for_itself(refused: tuple[Any, Any]) -> None:
    """It is Celery's own result, of the task's own class."""
    first, _ = refused
    app.backend.store_result(first.id, "value", "SUCCESS")
    assert first.get(timeout=5) == "value"
    assert isinstance(first, AsyncResult)
    assert len(first.fingerprint) == 64


def test_other_processes_ask_the_rows(base: Base, refused: tuple[Any, Any]) -> None:
    """A process that has nothing but the id learns what became of it, and whose job counts."""
    first, second = refused
    with base.atomic():
        waiting = tasks.until_executed.delay("b")
        assert outcome_of(AsyncResult(waiting.id)) == "deferred"
    assert outcome_of(AsyncResult("no such id")) == "unknown"
    told = run_python(
        base.elsewhere(),
        f"""
        from celery.result import AsyncResult
        from django_jobdedup import job_of, outcome_of
        for task_id in {[first.id, second.id, waiting.id]}:
            result = AsyncResult(task_id)
            tell([str(outcome_of(result)), outcome_of(result).duplicate, job_of(result).id])
        """,
    )
    assert told == [
        ["accepted", False, first.id],
        ["suppressed", True, first.id],
        ["accepted", False, waiting.id],
    ]


def test_a_result_that_travels_is_a_plain_one(refused: tuple[Any, Any]) -> None:
    """Pickled it is what Celery would make of the id; the row tells the rest."""
    _, second = refused
    copy = pickle.loads(pickle.dumps(second))
    assert type(copy) is not type(second)
    assert (copy.id, outcome_of(copy), job_of(copy).id) == (second.id, "suppressed", refused[0].id)
    assert second.as_tuple() == copy.as_tuple()


def test_a_call_that_nobody_has_decided_yet(base: Base) -> None:
    """``get()`` waits for the decision, no longer than it may; nothing is known before."""
    with base.interrupted():
        result = tasks.until_executed.delay("a")
    assert (result.outcome, result.duplicate, result.ready()) == (Outcome.DEFERRED, None, False)
    with pytest.raises(ResultTimeout):
        result.get(timeout=0.2)


@pytest.mark.usefixtures("soon")
def test_the_relay_decides_for_the_caller_too(base: Base) -> None:
    """Whoever decides: the row says it, and the result finds it there."""
    holder = tasks.until_executed.delay("a")
    with base.interrupted():
        result = tasks.until_executed.delay("a")
    assert [sent.what for sent in base.relay()] == ["settled"]
    app.backend.store_result(holder.id, "value", "SUCCESS")
    assert result.get(timeout=5) == "value"
    assert (result.outcome, result.duplicate) == (Outcome.SUPPRESSED, True)


def test_nobody_waits_for_what_is_not_stored(base: Base) -> None:
    """With ``ignore_result`` there is nothing to get, before and after."""
    with base.atomic():
        result = jobs.forgetful.delay("a")
        assert result.get() is None
    assert result.get() is None


def test_get_inside_the_transaction_is_an_error(base: Base) -> None:
    """It would wait for ever: the message goes out after the block, and ``get()`` is inside."""
    with base.atomic():
        result = tasks.until_executed.delay("a")
        with base.atomic(), pytest.raises(Undecided, match="ask for its result after the atomic block"):
            result.get()
        assert result.ready() is False


def test_it_follows_from_job_to_job(base: Base, refused: tuple[Any, Any]) -> None:
    """The job that covers a call may give its place to another, and that one to the next."""
    first, second = refused
    for _ in range(3):
        last = tasks.until_executed.apply_async(("a",), unique={"on_conflict": "replace"})
    assert job_of(second).id == job_of(first).id == last.id
    assert job_of(AsyncResult(second.id)).id == job_of(AsyncResult(first.id)).id == last.id
    app.backend.store_result(last.id, "value", "SUCCESS")
    assert (second.state, second.get(timeout=5)) == ("SUCCESS", "value")


def test_it_follows_a_job_whose_place_is_taken_meanwhile(base: Base, refused: tuple[Any, Any]) -> None:
    """Its message ends as a success that names the other."""
    first, second = refused
    assert second.state == "PENDING"
    other = tasks.until_executed.apply_async(("a",), unique={"on_conflict": "replace"})
    app.backend.store_result(first.id, Suppressed(other.id), "SUCCESS")
    assert (second.ready(), second.state) == (False, "PENDING")
    with pytest.raises(ResultTimeout):
        second.get(timeout=0.2)
    app.backend.store_result(other.id, "value", "SUCCESS")
    assert (second.get(timeout=5), second.state) == ("value", "SUCCESS")
    assert second.outcome == "suppressed"


def test_get_follows_while_it_waits(base: Base, refused: tuple[Any, Any]) -> None:
    first, second = refused
    assert second.state == "PENDING"
    app.backend.store_result(first.id, Suppressed("the other"), "SUCCESS")
    app.backend.store_result("the other", "value", "SUCCESS")
    assert second.get(timeout=5) == "value"


def test_nobody_follows_for_ever(base: Base, refused: tuple[Any, Any]) -> None:
    """Two jobs that name each other are a damaged pair of rows."""
    first, second = refused
    app.backend.store_result(first.id, Suppressed(second.id), "SUCCESS")
    app.backend.store_result(second.id, Suppressed(first.id), "SUCCESS")
    JobIntent.objects.using(base.using).filter(token=first.id).update(
        state="superseded", seat="", wait_key=None, mark_by=second.id
    )
    assert set(second.get(timeout=5)) == {"suppressed_by"}
    assert job_of(second).id in (first.id, second.id)
