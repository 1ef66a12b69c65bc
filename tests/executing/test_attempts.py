"""Etas and retries: the chain of attempts holds one key, for as long as it is planned (cases U16 and U17)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.rig.journal import Run
from tests.rig.waiting import wait_for

from . import tasks
from .conftest import Outcome, Stage, Stories, call_until_accepted, new_key

pytestmark = pytest.mark.worker

stories = Stories()


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of attempts, an outsider during its back-off, an outsider after its end."""

    runs: list[Run]
    refused: bool
    state: str
    after: list[Run]
    life: float = 0.0


def _chain(stage: Stage, attempts: int, call: Callable[[str], Any], outside: Callable[[str], Any]) -> Chain:
    """Call, let an outsider call during the first back-off and after the end."""
    key = new_key()
    first = call(key)
    wait_for(lambda: [run for run in stage.runs(key) if run.ended], 10, every=0.1)
    time.sleep(0.1)
    life = stage.lock_keys.life(first.fingerprint)
    outsider = outside(key)
    wait_for(lambda: len(stage.runs(key)) == attempts and stage.runs(key)[-1].ended, 20, every=0.1)
    first.get(timeout=10, propagate=False)
    runs = stage.runs(key)
    again = call_until_accepted(lambda: outside(key), timeout=2)
    again.get(timeout=10, propagate=False)
    time.sleep(0.2)
    return Chain(
        runs,
        outsider.duplicate and outsider.id == first.id,
        first.state,
        stage.journal.runs(task_id=again.id),
        life,
    )


@stories.tell
def retries(stage: Stage) -> Chain:
    """Two retries after two seconds each, then success."""
    call = tasks.chained_attempts.delay
    return _chain(stage, 3, lambda key: call(key, 2, 2.0), lambda key: call(key, 0))


@stories.tell
def retries_used_up(stage: Stage) -> Chain:
    """One retry is allowed, and it is not enough."""
    return _chain(stage, 2, lambda key: tasks.early.delay(key, "retry", 2.0), tasks.early.delay)


@stories.tell
def late_retries_used_up(stage: Stage) -> Chain:
    """The same, acked late."""
    return _chain(stage, 2, lambda key: tasks.late.delay(key, "retry", 2.0), tasks.late.delay)


@stories.tell
def automatic_retries(stage: Stage) -> Chain:
    """Celery retries by itself, twice."""
    call = tasks.failing_twice.delay
    return _chain(stage, 3, call, call)


@stories.tell
def retry_with_other_arguments(stage: Stage) -> Chain:
    """The retry carries an argument that belongs to the key."""
    call = tasks.stepping.delay
    return _chain(stage, 2, call, call)


@stories.tell
def retry_beyond_the_ttl(stage: Stage) -> Chain:
    """The back-off is three times the TTL."""
    call = tasks.short_lived.delay
    return _chain(stage, 2, lambda key: call(key, 1, 3.0), lambda key: call(key, 0))


@pytest.mark.parametrize(
    ("story", "attempts", "state"),
    [
        (retries, 3, "SUCCESS"),
        (retries_used_up, 2, "FAILURE"),
        (late_retries_used_up, 2, "FAILURE"),
        (automatic_retries, 3, "SUCCESS"),
        (retry_with_other_arguments, 2, "SUCCESS"),
        (retry_beyond_the_ttl, 2, "SUCCESS"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_attempts_hold_one_key_until_the_last_has_ended(
    outcome: Outcome, story: Callable[[Stage], Any], attempts: int, state: str
) -> None:
    chain: Chain = outcome(story)
    assert chain.refused, "the outsider holds the id of the chain"
    assert [run.retries for run in chain.runs] == list(range(attempts))
    assert len({run.id for run in chain.runs}) == 1
    assert chain.state == state
    assert len(chain.after) >= 1, "an outsider after the end runs"


def test_a_retry_with_other_arguments_keeps_its_fingerprint(outcome: Outcome) -> None:
    """The key of the first arguments is free after the retry, which had others; see ``after`` there."""
    chain: Chain = outcome(retry_with_other_arguments)
    assert chain.after[0].retries == 0


@stories.tell
def planned_beyond_the_ttl(stage: Stage) -> dict[str, Any]:
    """A countdown of eight seconds, a TTL of one; equal calls during the wait."""
    key = new_key()
    first = tasks.short_lived.apply_async((key,), countdown=8)
    time.sleep(0.3)  # confirmed
    life = stage.lock_keys.life(first.fingerprint)
    time.sleep(2.7)
    second = tasks.short_lived.apply_async((key,), countdown=8)
    time.sleep(1.5)
    third = tasks.short_lived.delay(key)
    first.get(timeout=10)
    time.sleep(0.3)
    return {
        "ids": [first.id, second.id, third.id],
        "duplicates": [second.duplicate, third.duplicate],
        "runs": stage.journal.runs(key),
        "life": life,
    }


def test_a_key_planned_beyond_its_ttl_waits_from_the_planned_start(outcome: Outcome) -> None:
    seen = outcome(planned_beyond_the_ttl)
    assert len(set(seen["ids"])) == 1
    assert seen["duplicates"] == [True, True]
    assert len(seen["runs"]) == 1
    assert seen["life"] >= 7, "the record outlives the countdown"


@stories.tell
def queued_beyond_the_ttl(stage: Stage) -> list[bool]:
    """Nobody consumes the queue for longer than the TTL: the key lapses, as TTL says."""
    key = new_key()

    def call() -> Any:
        return tasks.short_lived.apply_async((key,), queue=f"nobody-{key}")

    calls = [call(), call()]
    # The TTL begins with the confirmation, which among so many threads may come late.
    return [each.duplicate for each in (*calls, call_until_accepted(call, timeout=10))]


def test_a_key_lapses_when_its_message_waits_longer_than_the_ttl(outcome: Outcome) -> None:
    assert outcome(queued_beyond_the_ttl) == [False, True, False]


@stories.tell
def mutex_with_back_off(stage: Stage) -> dict[str, Any]:
    """While one backs off, another runs; both end."""
    key = new_key()
    first = tasks.mutex_retrying.delay(key, 1)
    wait_for(lambda: [run for run in stage.runs(key) if run.ended], 10, every=0.1)
    second = tasks.mutex_retrying.delay(key, 0, 0.3)
    second.get(timeout=10)
    runs_then = stage.journal.runs(key)
    first.get(timeout=10)
    return {"ids": (first.id, second.id), "then": runs_then, "runs": stage.journal.runs(key), "key": key}


def test_a_mutex_is_free_during_the_back_off(outcome: Outcome, stage: Stage) -> None:
    seen = outcome(mutex_with_back_off)
    first, second = seen["ids"]
    assert [run.id for run in seen["then"]] == [first, second], "the second ran before the retry"
    assert [(run.id, run.retries) for run in seen["runs"]] == [(first, 0), (second, 0), (first, 1)]
    assert stage.journal.overlaps(seen["key"]) == []
