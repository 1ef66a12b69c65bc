"""Every strategy decides after the commit as it does at once."""

from __future__ import annotations

import base64
import json
from typing import Any

from django_jobdedup import job_of
from django_jobdedup.stored_call.codec import arguments_of
from tests.jobs import tasks

from .conftest import Base


def call(key: str, strategy: str, seconds: float = 0.0, **options: Any) -> Any:
    """Call a task under a strategy; ``seconds`` tells one call from another."""
    unique = {"lock": "until_executed", "on_conflict": strategy}
    return tasks.until_executed.apply_async((key, seconds), unique=unique, **options)


def test_rerun_joins_the_job_that_waits(base: Base) -> None:
    """Its arguments are the newest; the row of the call says whose job it became."""
    first = call("a", "rerun", 1.0)
    with base.atomic():
        second, third = call("a", "rerun", 2.0), call("a", "rerun", 3.0)
        assert second.outcome == "deferred"
    assert [result.outcome for result in (second, third)] == ["rerun", "rerun"]
    assert [result.duplicate for result in (second, third)] == [True, True]
    assert job_of(third).id == first.id
    assert base.sent() == [first.id]
    holder, *others = base.rows()
    assert [(row.state, row.mark_by) for row in others] == [("superseded", first.id)] * 2
    assert b"3.0" in bytes(holder.args)


def test_rerun_of_calls_in_one_transaction(base: Base) -> None:
    """The first is accepted, the later ones join it; the newest arguments win."""
    with base.atomic():
        results = [call("a", "rerun", float(n)) for n in range(3)]
    assert [result.outcome for result in results] == ["accepted", "rerun", "rerun"]
    assert base.sent() == [results[0].id]
    assert b"2.0" in bytes(base.rows()[0].args)


def test_a_call_that_is_due_sooner_brings_the_run_forward(base: Base) -> None:
    """A copy of the waiting job's message goes out under its id, and the call's own row is settled."""
    first = call("a", "rerun", 1.0, countdown=500, shadow="own", link=tasks.until_executed.si("linked"))
    with base.atomic():
        second = call("a", "rerun", 2.0, shadow="other", expires=60)
    assert second.outcome == "rerun"
    assert base.sent() == [first.id, first.id]
    far, near = base.messages()
    assert tuple(near["arguments"]) == ("a", 2.0)
    assert near["embed"] == far["embed"]
    assert near["embed"]["callbacks"]
    assert [near["headers"][name] for name in ("shadow", "eta", "expires")] == ["own", None, None]
    assert [row.state for row in base.rows()] == ["published", "superseded"]
    assert [row.seat for row in base.rows()] == ["W", ""]


def test_replace_takes_the_place_of_the_job_that_waits(base: Base) -> None:
    """The older message ends at its start, when it comes."""
    first = call("a", "replace")
    with base.atomic():
        second = call("a", "replace")
    assert second.outcome == "accepted"
    assert base.sent() == [first.id, second.id]
    older, newer = base.rows()
    assert (older.state, older.mark_by, newer.state) == ("superseded", second.id, "published")
    assert job_of(first).id == second.id


def test_keep_soonest(base: Base) -> None:
    """The later of two is dropped, the sooner takes the place."""
    first = call("a", "keep_soonest", countdown=500)
    with base.atomic():
        later, sooner = call("a", "keep_soonest", countdown=600), call("a", "keep_soonest", countdown=10)
    assert [later.outcome, sooner.outcome] == ["suppressed", "accepted"]
    assert base.sent() == [first.id, sooner.id]


def test_reject_leaves_a_dead_row(base: Base) -> None:
    """With the reason, and with the whole call, so that a person can send it again."""
    first = call("a", "reject")
    with base.atomic():
        second = call("a", "reject")
    assert (second.outcome, base.sent()) == ("suppressed", [first.id])
    row = base.rows()[1]
    assert (row.state, row.reason) == ("dead", f"rejected: job {first.id} holds its lock")
    assert arguments_of(row.call, accept={"application/json"})[0] == ("a", 0.0)


def test_a_promise_is_kept_whatever_the_strategy(base: Base) -> None:
    """A call that somebody waits for is published, though it is merged or rejected besides."""
    for strategy in ("rerun", "reject", "keep_soonest"):
        first = call(strategy, strategy)
        with base.atomic():
            second = call(strategy, strategy, 5.0, task_id=f"promised-{strategy}")
        assert second.outcome == "followed"
        assert base.sent()[-2:] == [first.id, second.id]
        body = json.loads(base64.b64decode(base.message(second.id)["body"]))
        assert body[0] == [strategy, 5.0]
