"""Headers that strangers have made up, or passed on with other messages: nobody else's job pays for them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from django_jobdedup.conf import conf
from django_jobdedup.fingerprint.digest import shard_of
from django_jobdedup.header import HEADER
from tests.dispatching.looking import holders_of
from tests.rig.waiting import wait_for

from . import tasks
from .conftest import Outcome, Stage, Stories, new_key, send_raw

pytestmark = pytest.mark.worker

stories = Stories()


def header_of(result: Any) -> dict[str, Any]:
    """Give the header of a job as anybody can read it in its message."""
    shard = shard_of(tasks.early.name, conf.SHARDS)
    return {"v": 1, "id": result.id, "s": shard, "k": [[result.fingerprint, {}]]}


def with_the_header_of_another(name: str, **options: Any) -> tuple[list[Any], str, int]:
    """Send a message with the header of a job that waits; give its holders, its value, its runs."""
    key = new_key()
    victim = tasks.early.apply_async((key,), countdown=3)
    send_raw(name, new_key(), headers={HEADER: header_of(victim)}, **options)
    time.sleep(2)
    held = [holder.id for holder in holders_of(victim.fingerprint, tasks.early.name)]
    return held, str(victim.get(timeout=10)), 1 if held == [victim.id] else 0


@stories.tell
def expired(stage: Stage) -> Any:
    """Under an id of its own, and expired when it comes."""
    return with_the_header_of_another(tasks.other.name, expires=0.001, countdown=0.2)


@stories.tell
def unknown(stage: Stage) -> Any:
    """For a task that the worker does not know."""
    return with_the_header_of_another("no.such.task")


@stories.tell
def revoked(stage: Stage) -> Any:
    """Revoked while it waits in the worker."""
    key = new_key()
    victim = tasks.early.apply_async((key,), countdown=3)
    other = send_raw(tasks.other.name, new_key(), headers={HEADER: header_of(victim)}, countdown=30)
    wait_for(lambda: f"[{other.id}] received" in stage.worker.log, 10, every=0.05)
    other.revoke()
    time.sleep(1.5)
    held = [holder.id for holder in holders_of(victim.fingerprint, tasks.early.name)]
    return held, str(victim.get(timeout=10)), 1 if held == [victim.id] else 0


@pytest.mark.parametrize("story", [expired, unknown, revoked], ids=lambda story: story.__name__)
def test_a_message_frees_no_lock_but_its_own(outcome: Outcome, story: Callable[[Stage], Any]) -> None:
    held, value, mine = outcome(story)
    assert mine == 1, held
    assert value.startswith("k-")


@stories.tell
def with_a_strategy_from_elsewhere(stage: Stage) -> Any:
    """Two messages under one lock; the strategy in the second names a module that nobody has imported."""
    key, fingerprint = new_key(), "ab" * 32
    knobs = {"l": "while_executing", "d": False, "e": 2}
    ids = [f"{key}-{number}" for number in range(2)]
    made = [
        send_raw(
            tasks.early.name, key, "succeed", 1.0, task_id=ids[0], headers=_header(ids[0], fingerprint, knobs)
        )
    ]
    wait_for(lambda: stage.runs(key), 10, every=0.05)
    knobs = {**knobs, "x": [f"{antigravity}.Strategy", {}]}
    made.append(send_raw(tasks.early.name, key, task_id=ids[1], headers=_header(ids[1], fingerprint, knobs)))
    wait_for(lambda: f"{ids[1]}] is put off" in stage.worker.log, 10)
    for result in made:
        result.revoke()
    return stage.worker.log


antigravity = "antigravity"
"""A module that does something visible when it is imported; no worker has a reason to."""


def _header(id: str, fingerprint: str, knobs: dict[str, Any]) -> dict[str, Any]:
    return {HEADER: {"v": 1, "id": id, "s": 1, "k": [[fingerprint, knobs]]}}


def test_a_header_has_nothing_imported(outcome: Outcome) -> None:
    log = outcome(with_a_strategy_from_elsewhere)
    assert "Nothing here has imported antigravity, where 'antigravity.Strategy' would be" in log
    assert "antigravity" not in sys.modules


@stories.tell
def with_an_id_that_is_none(stage: Stage) -> Any:
    """A foreign message whose id holds a separator of ours; then calls of the same key."""
    key = new_key()
    foreign = send_raw(tasks.early.name, key, "succeed", 1.5, task_id=f"{key}\x1fb")
    wait_for(lambda: stage.runs(key), 10, every=0.05)
    ours = tasks.early.delay(key)
    return ours.outcome, ours.get(timeout=10), foreign.get(timeout=10), stage.worker.log


def test_a_foreign_id_that_does_not_print_takes_no_seat(outcome: Outcome) -> None:
    became, *values, log = outcome(with_an_id_that_is_none)
    assert became == "accepted"
    assert values[0] == values[1]
    assert "its id is no printable text: it runs without one" in log


@stories.tell
def with_garbage_in_the_header(stage: Stage) -> Any:
    """Headers that no store could keep, waiting in the worker, and a job whose lease must go on."""
    for broken in ({"k": [["a\x00b", {}]]}, {"k": [["\ud800", {}]]}, {"u": "\ud800"}):
        id = new_key()
        header = {"v": 1, "id": id, "s": 1, "k": [["cd" * 32, {}]], **broken}
        send_raw(tasks.other.name, id, task_id=id, headers={HEADER: header}, countdown=8)
    key = new_key()
    long = tasks.early.delay(key, "succeed", 5.0)
    wait_for(lambda: stage.runs(key), 10, every=0.05)
    time.sleep(4)
    (holder,) = holders_of(long.fingerprint, tasks.early.name)
    return holder.id == long.id, long.get(timeout=10) == key, stage.worker.log


def test_garbage_in_a_header_keeps_no_lease_from_being_renewed(outcome: Outcome) -> None:
    renewed, ended, log = outcome(with_garbage_in_the_header)
    assert renewed
    assert ended
    assert "internal error in lease" not in log


@stories.tell
def spoiled_on_the_way(stage: Stage) -> Any:
    """The sender's own seat, and a message whose header a bridge has cut off, or that says one word more."""
    seen = []
    for spoiled in (None, {"l": 5}):
        key = new_key()
        sent = tasks.early.apply_async((key,), queue=f"nobody-{key}")
        header = None if spoiled is None else {**header_of(sent), "k": [[sent.fingerprint, spoiled]]}
        headers = {} if header is None else {HEADER: header}
        again = send_raw(tasks.early.name, key, task_id=sent.id, headers=headers)
        value = again.get(timeout=10)
        wait_for(lambda: not holders_of(sent.fingerprint, tasks.early.name), 5)  # noqa: B023
        seen.append((value == key, len(stage.journal.runs(key))))
    return seen


def test_a_job_is_not_refused_by_its_own_seat(outcome: Outcome) -> None:
    assert outcome(spoiled_on_the_way) == [(True, 1)] * 2
