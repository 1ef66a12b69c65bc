"""In the caller's transaction a call is written down; after the commit it is decided and published."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from celery import Task, chain, chord, group, shared_task
from django.db import transaction

from django_jobdedup import FingerprintError, Outcome, StoredCallError, outcome_of
from django_jobdedup.dispatching import outbox
from testproject.celery import app
from tests.dispatching import jobs
from tests.jobs import tasks

from .conftest import Base


def test_a_call_waits_for_the_commit(base: Base, heard: Any) -> None:
    """Nothing leaves the database before; then the message goes out under the id that the caller holds."""
    with base.atomic():
        result = tasks.until_executed.delay("a")
        assert (result.outcome, result.duplicate) == (Outcome.DEFERRED, None)
        assert base.sent() == []
        assert base.states() == ["pending"]
    assert base.sent() == [result.id]
    assert base.states() == ["published"]
    assert (result.outcome, result.duplicate) == (Outcome.ACCEPTED, False)
    assert outcome_of(result) is Outcome.ACCEPTED
    assert [said["outcome"] for said in heard["dispatch_decided"]] == ["deferred", "accepted"]
    assert [said["holder_id"] for said in heard["dispatch_decided"]] == [result.id] * 2


def test_in_autocommit_a_call_is_decided_at_once(base: Base) -> None:
    """It takes its seat with the row, is published and confirmed before ``delay()`` returns."""
    first, second = tasks.until_executed.delay("a"), tasks.until_executed.delay("a")
    assert (first.outcome, second.outcome) == ("accepted", "suppressed")
    assert second.id == first.id
    assert base.sent() == [first.id]
    assert [(row.state, row.seat) for row in base.rows()] == [("published", "W")]


@pytest.mark.parametrize("lock", ["while_executing", "until_and_while_executing", "until_executing"])
def test_every_call_has_a_row_whatever_its_lock(base: Base, lock: str) -> None:
    """Also of the lock that takes no seat at dispatch: the row says that the job must run."""
    results = [getattr(tasks, lock).delay("a") for _ in range(2)]
    expected = 2 if lock == "while_executing" else 1
    assert [row.seat for row in base.rows()] == ["W"] * expected
    assert base.sent() == [result.id for result in results][:expected]


def test_calls_of_one_transaction_are_decided_by_one_action_in_order(base: Base) -> None:
    """The first of one key is accepted, the others learn by whom they are covered."""
    with base.atomic():
        results = [tasks.until_executed.delay(f"key-{n % 3}") for n in range(9)]
        assert base.actions() == 1
    assert base.sent() == [result.id for result in results[:3]]
    assert [result.outcome for result in results] == ["accepted"] * 3 + ["suppressed"] * 6
    assert [result.duplicate for result in results] == [False] * 3 + [True] * 6
    assert len({result.id for result in results}) == 9
    covered = {row.token: row.mark_by for row in base.rows() if row.state == "superseded"}
    assert covered == {result.id: results[n % 3].id for n, result in enumerate(results) if n >= 3}


def test_the_next_transaction_has_an_action_of_its_own(base: Base) -> None:
    """Neither a commit nor a rollback leaves anything that a later call could be added to."""
    sent = []
    for end in ("commit", "rollback", "commit", "rollback", "commit"):
        with base.atomic():
            result = tasks.until_executed.delay(f"{end}-{len(sent)}")
            if end == "rollback":
                transaction.set_rollback(True, using=base.using)
            else:
                sent.append(result.id)
    assert base.sent() == sent


def test_more_calls_than_one_batch(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large transaction is decided to its end, where its caller has the time."""
    monkeypatch.setattr(outbox, "PATIENCE", 60.0)
    with base.atomic():
        results = [tasks.while_executing.delay("a") for _ in range(230)]
    assert base.sent() == [result.id for result in results]
    assert set(base.states()) == {"published"}


def test_a_holder_from_before_covers_the_call(base: Base) -> None:
    """The decision falls after the commit, against what is there then."""
    before = tasks.until_executed.delay("a")
    with base.atomic():
        result = tasks.until_executed.delay("a")
        assert result.duplicate is None
    assert (result.outcome, result.duplicate) == ("suppressed", True)
    assert result.id != before.id
    assert base.sent() == [before.id]


def test_nobody_is_left_to_raise_to(base: Base, log: pytest.LogCaptureFixture, heard: Any) -> None:
    """Under "raise" a call that is refused after the commit is a warning and a superseded row."""
    policy = {"on_conflict": "raise"}
    with base.atomic():
        first, second = (tasks.until_executed.apply_async(("a",), unique=policy) for _ in range(2))
    assert base.sent() == [first.id]
    assert second.outcome == "suppressed"
    assert f"was not queued: job {first.id} holds lock" in log.text
    assert [said["outcome"] for said in heard["dispatch_decided"]][2:] == ["accepted", "suppressed"]


def test_a_call_is_put_off_after_the_commit(base: Base) -> None:
    """Under "reschedule" the refused one is published for later, without a seat."""
    policy = {"lock": "until_executed", "key": "key", "on_conflict": ["reschedule", {"after": 60}]}
    with base.atomic():
        first, second = (tasks.until_executed.apply_async(("a",), unique=policy) for _ in range(2))
    assert second.outcome == "rescheduled"
    assert base.sent() == [first.id, second.id]
    assert base.message(second.id)["headers"]["eta"] is not None
    assert base.message(first.id)["headers"]["eta"] is None
    assert base.states() == ["published", "published"]


def test_the_whole_call_travels(base: Base) -> None:
    """Queue, priority, limits, headers and links are those of the call."""
    options = {
        "queue": "fast", "priority": 3, "time_limit": 100, "headers": {"trace": "x"},
        "link": jobs.noticing.si("after"), "expires": 600, "countdown": 500,
    }  # fmt: skip
    with base.atomic():
        result = tasks.until_executed.apply_async(("a",), {"seconds": 0.0}, **options)
    queue = "fast\x06\x163"
    message = base.message(result.id, queue)
    assert message["headers"]["trace"] == "x"
    assert message["headers"]["timelimit"] == [100, None]
    assert message["headers"]["root_id"] == result.id
    assert message["headers"]["eta"] < message["headers"]["expires"]
    args, kwargs, embedded = json.loads(base64.b64decode(message["body"]))
    assert (args, kwargs) == (["a"], {"seconds": 0.0})
    assert embedded["callbacks"][0]["args"] == ["after"]


def test_the_call_is_the_one_that_was_made(base: Base) -> None:
    """What the caller does with an argument afterwards changes nothing."""
    value = ["as it was"]
    with base.atomic():
        result = jobs.anything.delay(value)
        value.append("changed")
    assert base.message(result.id)["arguments"] == [["as it was"]]


def test_a_mistake_is_raised_at_the_call_and_writes_nothing(base: Base) -> None:
    """No row, no lock, no message: in a transaction and out of it."""
    for open_one in (True, False):
        with base.atomic() if open_one else transaction.atomic():
            with pytest.raises(StoredCallError, match="option on_return= cannot be stored"):
                tasks.until_executed.apply_async(("a",), on_return=print)
            with pytest.raises(FingerprintError):
                tasks.until_executed.delay(object())
    assert base.rows() == []
    assert base.sent() == []


def test_promised_ids_are_kept_and_never_dropped(base: Base) -> None:
    """What a workflow waits for is published under its own id, also behind an equal call."""
    with base.atomic():
        steps = chain(tasks.until_executed.si("same"), jobs.noticing.si("tail")).apply_async()
        members = group(tasks.until_executed.si("same") for _ in range(2)).apply_async()
        body = chord([tasks.until_executed.si("same")], jobs.summing.s("body")).apply_async()
        given = tasks.until_executed.apply_async(("same",), task_id="given")
        assert base.sent() == []
    promised = [steps.parent.id, *(each.id for each in members), body.parent[0].id, "given"]
    assert base.sent() == promised
    assert given.outcome == "followed"
    assert base.states() == ["published"] * 5
    assert [row.seat for row in base.rows()] == ["W", "", "", "", ""]


def test_a_call_with_the_id_of_the_holder_is_that_job(base: Base) -> None:
    """The caller who gives the id that holds the lock gets its result; nothing is sent twice."""
    with base.atomic():
        for _ in range(2):
            tasks.until_executed.apply_async(("a",), task_id="mine")
    assert base.sent() == ["mine"]


def test_a_bypass_waits_for_the_commit_as_well(base: Base) -> None:
    """Going past the lock is not going before the data; it takes no seat and meets none."""
    with base.atomic():
        locked = tasks.until_executed.delay("a")
        past = tasks.until_executed.apply_async(("a",), unique=False)
        assert (past.outcome, base.sent()) == ("deferred", [])
    assert base.sent() == [locked.id, past.id]
    assert past.outcome == "bypassed"
    assert "k" not in base.message(past.id)["headers"]["jobdedup"]
    assert base.states() == ["published", "published"]


def test_a_bypass_that_no_fingerprint_could_be_made_of(base: Base, settings: Any) -> None:
    """Whoever goes past the lock needs no canonical form."""
    settings.JOBDEDUP_TASKS = {"tests.jobs.tasks.until_executed": {"unique": {"key": "nothing"}}}
    with base.atomic():
        past = tasks.until_executed.apply_async(("a",), unique=False)
    assert base.sent() == [past.id]


def test_an_unattended_queue_is_observed_after_the_commit(base: Base, settings: Any) -> None:
    """No worker with the app is known: published after the commit, without a seat that nobody would free."""
    settings.JOBDEDUP_REQUIRE_WORKER = True
    with base.atomic():
        results = [tasks.until_executed.delay("a"), tasks.while_executing.delay("a")]
        assert base.sent() == []
    assert [result.outcome for result in results] == ["observed", "observed"]
    assert base.sent() == [result.id for result in results]
    assert [(row.state, row.seat) for row in base.rows()] == [("published", "")] * 2


def test_an_attended_queue_is_locked(base: Base, settings: Any) -> None:
    """The presence of a worker stands in the same database."""
    settings.JOBDEDUP_REQUIRE_WORKER = True
    base.store.announce(["celery"], 60)
    with base.atomic():
        result = tasks.until_executed.delay("a")
    assert result.outcome == "accepted"


def test_a_task_that_is_not_known_here(base: Base, settings: Any) -> None:
    """Its worker makes the fingerprint; the message waits for the commit all the same."""
    settings.JOBDEDUP_TASKS = {"elsewhere.*": {"unique": True}}
    with base.atomic():
        result = app.send_task("elsewhere.task", ("a",))
        assert base.sent() == []
    assert base.sent() == [result.id]
    assert result.outcome == "unknown"
    assert "jobdedup" not in base.message(result.id)["headers"]


def test_a_task_without_a_policy_is_none_of_ours(base: Base) -> None:
    """It goes out at once, as ever."""
    with base.atomic():
        result = tasks.plain.delay("a")
        assert base.sent() == [result.id]


def test_turned_off_everything_goes_at_once(base: Base, settings: Any) -> None:
    """In mode "off" nothing of ours happens, the wait for the commit included."""
    settings.JOBDEDUP_MODE = "off"
    with base.atomic():
        result = tasks.until_executed.delay("a")
        assert base.sent() == [result.id]
    assert base.rows() == []


@pytest.mark.parametrize("mode", ["bypass", "enforce"])
def test_a_call_that_runs_in_its_caller_does_not_wait(base: Base, settings: Any, mode: str) -> None:
    """There is no message that could wait for the commit."""
    settings.JOBDEDUP_EAGER = mode
    with base.atomic():
        result = jobs.adding.apply(("a", 1, 2))
        assert result.get() == 3
    assert result.outcome == ("bypassed" if mode == "bypass" else "accepted")
    assert base.sent() == []
    assert "pending" not in base.states()


def test_delay_on_commit_is_decided_after_the_commit(base: Base) -> None:
    """Celery's own way comes to the same."""
    seen = []
    with base.atomic():
        transaction.on_commit(lambda: seen.append(tasks.until_executed.delay("a")), using=base.using)
        assert base.rows() == []
    assert [result.outcome for result in seen] == ["accepted"]
    assert base.sent() == [seen[0].id]


def test_an_order_over_savepoints(base: Base) -> None:
    """Calls are decided in the order in which they were made, wherever the savepoints lie."""
    with base.atomic():
        results = [tasks.while_executing.delay("a")]
        with base.atomic():
            results.append(tasks.while_executing.delay("a"))
            with base.atomic():
                results.append(tasks.while_executing.delay("a"))
        results.append(tasks.while_executing.delay("a"))
    assert base.sent() == [result.id for result in results]


@shared_task(bind=True, unique={"key": []}, acks_late=True)
def named_only(self: Task) -> None:
    """Be one job whatever the arguments."""


def test_no_worker_is_asked_for_the_parent(base: Base) -> None:
    """A call from nowhere has no parent, whoever publishes it later."""
    with base.atomic():
        result = named_only.delay()
    assert base.message(result.id)["headers"]["parent_id"] is None
