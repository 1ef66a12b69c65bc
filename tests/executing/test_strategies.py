"""The strategies at work: a real worker, and what its bodies were called with."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from celery import group

from django_jobdedup import JobDead, release
from tests.dispatching.looking import holders
from tests.rig.waiting import wait_for

from . import strategy_tasks as tasks
from .conftest import new_key, running, send_raw
from .place import Place

pytestmark = [pytest.mark.worker, pytest.mark.timeout(90)]


# rerun


def test_the_job_that_waits_runs_once_with_the_newest_arguments(place: Place) -> None:
    key = new_key()
    first = tasks.rerunning.apply_async((key, 1), countdown=1.0)
    second, third = tasks.rerunning.apply_async((key, 2), countdown=1.0), tasks.rerunning.delay(key, value=3)
    assert {first.id, second.id, third.id} == {first.id}
    assert third.get(timeout=10) == 3
    place.wait_until_free()
    assert place.values(key) == [3]


def test_calls_during_a_run_are_one_run_more(place: Place) -> None:
    key, first = running(place, tasks.rerunning_soon)
    second, third, fourth = (tasks.rerunning_soon.delay(key, value) for value in (2, 3, 4))
    assert (second.outcome, third.outcome, fourth.outcome) == ("accepted", "rerun", "rerun")
    place.let_end(key)
    assert first.get(timeout=10) == 1
    assert {each.get(timeout=10) for each in (second, third, fourth)} == {4}
    assert place.values(key) == [1, 4]
    assert place.journal.overlaps(key) == []


def test_the_end_of_a_run_wakes_the_job_that_waits_for_it(place: Place) -> None:
    """Its message sleeps for four seconds at least; the call is stored, so it is published at once."""
    key, first = running(place, tasks.rerunning)
    second = tasks.rerunning.delay(key, 2)
    place.worker.wait_for_log(f"{second.id}] is put off behind job {first.id}")
    place.let_end(key)
    assert second.get(timeout=10) == 2
    begun, later = place.journal.runs(key)
    assert later.started - begun.ended < 3.0
    assert place.journal.overlaps(key) == []
    wait_for(lambda: place.worker.log.count(f"{second.id}] received") >= 3, 10)
    place.worker.wait_for_log(f"{second.id}] ignored")
    assert place.values(key) == [1, 2], "the one that slept finds that it has run"


def test_a_member_of_a_group_is_woken_too(place: Place) -> None:
    """Celery gives it options of its own that a woken message has to say otherwise."""
    key, first = running(place, tasks.rerunning)
    members = group([tasks.rerunning.si(key, 2)]).apply_async()
    place.worker.wait_for_log(f"{members[0].id}] is put off behind job {first.id}")
    place.let_end(key)
    assert members.get(timeout=10) == [2]
    begun, later = place.journal.runs(key)
    assert later.started - begun.ended < 3.0
    assert "internal error in waking" not in place.worker.log


def test_a_retry_keeps_the_newest_arguments(place: Place) -> None:
    key = new_key()
    tasks.rerunning_retried.apply_async((key, 1), countdown=1.0)
    last = tasks.rerunning_retried.delay(key, 2)
    assert last.get(timeout=10) == 2
    assert place.values(key) == [2, 2]


def test_a_retry_with_other_arguments_runs_with_those(place: Place) -> None:
    key = new_key()
    assert tasks.rerunning_retried.delay(key, 1, 7).get(timeout=10) == 7
    assert place.values(key) == [1, 7]


def test_a_call_that_meets_a_retry_is_what_the_retry_runs_with(place: Place) -> None:
    key = new_key()
    first = tasks.rerunning_retried.delay(key, 1)
    wait_for(lambda: first.state == "RETRY", 10)
    second = tasks.rerunning_retried.delay(key, 5)
    assert (second.outcome, second.id) == ("rerun", first.id)
    assert second.get(timeout=10) == 5
    place.wait_until_free()
    assert place.values(key)[0] == 1
    assert set(place.values(key)[1:]) == {5}


def test_a_message_of_a_sender_without_the_app_joins_the_job_that_waits(place: Place) -> None:
    key = new_key()
    first = tasks.rerunning_soon.apply_async((key, 1), countdown=1.0)
    raw = send_raw(tasks.rerunning_soon.name, key, 5, countdown=1.5)
    assert first.get(timeout=10) == 5
    assert raw.get(timeout=10) == {"suppressed_by": first.id}
    assert place.values(key) == [5]


def test_such_a_message_that_may_start_sooner_runs_itself(place: Place) -> None:
    """It is the copy that the waiting job asks for."""
    key = new_key()
    first = tasks.rerunning_soon.apply_async((key, 1), countdown=1.5)
    raw = send_raw(tasks.rerunning_soon.name, key, 5)
    assert raw.get(timeout=10) == 5
    assert first.get(timeout=10) == 5
    assert place.journal.overlaps(key) == []


# replace, keep_soonest


def test_the_last_call_runs_and_the_older_message_ends_as_covered_by_it(place: Place) -> None:
    key = new_key()
    first = tasks.replacing.apply_async((key, 1), countdown=1.0)
    second = tasks.replacing.apply_async((key, 2), countdown=0.2)
    assert second.get(timeout=10) == 2
    assert first.get(timeout=10) == {"suppressed_by": second.id}
    assert first.state == "SUCCESS"
    assert place.values(key) == [2]


def test_a_running_job_is_followed_by_the_newcomer(place: Place) -> None:
    key, first = running(place, tasks.replacing)
    second, third = tasks.replacing.delay(key, 2), tasks.replacing.delay(key, 3)
    place.let_end(key)
    assert first.get(timeout=10) == 1
    assert third.get(timeout=10) == 3
    assert second.get(timeout=10) == {"suppressed_by": third.id}
    assert place.values(key) == [1, 3]
    assert place.journal.overlaps(key) == []


def test_the_soonest_runs(place: Place) -> None:
    key = new_key()
    first = tasks.soonest.apply_async((key, 1), countdown=1.8)
    second = tasks.soonest.apply_async((key, 2), countdown=0.9)
    third = tasks.soonest.apply_async((key, 3), countdown=1.4)
    assert third.id == second.id
    assert second.get(timeout=10) == 2
    assert first.get(timeout=10) == {"suppressed_by": second.id}
    assert place.values(key) == [2]


# Wait


def test_a_start_that_waits_begins_when_the_other_has_ended(place: Place) -> None:
    key, first = running(place, tasks.waiting)
    second = tasks.waiting.delay(key, 2)
    place.worker.wait_for_log(f"{second.id}] waits for job {first.id}, at most 1 s")
    place.let_end(key)
    assert second.get(timeout=10) == 2
    begun, later = place.journal.runs(key)
    assert later.started - (begun.ended or 0.0) < 1.5
    assert place.journal.overlaps(key) == []
    assert f"{second.id}] is put off" not in place.worker.log


def test_a_start_that_waited_in_vain_goes_by_the_next_strategy(place: Place) -> None:
    key, first = running(place, tasks.waiting_in_vain)
    second = tasks.waiting_in_vain.delay(key, 2)
    assert second.get(timeout=10) == {"suppressed_by": first.id}
    place.check_covered(second.id, first.id)
    assert first.state != "SUCCESS", "it did not wait for the end"
    place.let_end(key)
    assert first.get(timeout=10) == 1


# A strategy of a project's own


def test_a_strategy_of_ones_own_decides_in_the_worker(place: Place) -> None:
    key, first = running(place, tasks.own_way)
    second = tasks.own_way.delay(key, 2)
    place.worker.wait_for_log(f"{second.id}] is put off behind job {first.id}")
    place.let_end(key)
    assert second.get(timeout=10) == 2
    assert place.journal.overlaps(key) == []


@pytest.mark.parametrize("word", ["skip", "raise", "reject", "wait"])
def test_each_decision_of_a_strategy_of_ones_own_is_carried_out_at_a_start(place: Place, word: str) -> None:
    key, first = running(place, tasks.by_word)
    second = tasks.by_word.apply_async((key, 2), unique={"on_conflict": tasks.ByWord(word)})
    if word == "wait":
        place.worker.wait_for_log(f"{second.id}] waits for job {first.id}")
        place.let_end(key)
        assert second.get(timeout=10) == 2
    elif word == "reject":
        with pytest.raises(JobDead, match="by word"):
            second.get(timeout=10)
        assert place.dead()[second.id].reason == "by word"
    else:
        assert second.get(timeout=10) == {"suppressed_by": first.id}
        said = [line for line in place.worker.log.splitlines() if f"{second.id}] does not run" in line]
        assert bool(said) is (word == "raise"), "a start has no caller to raise to: it is logged"
    place.let_end(key)
    assert first.get(timeout=10) == 1
    assert place.values(key) == ([1, 2] if word == "wait" else [1])


def test_a_lock_type_of_ones_own_outlives_its_run(place: Place) -> None:
    key, first = running(place, tasks.collecting)
    during = tasks.collecting.delay(key, 2)
    place.let_end(key)
    assert first.get(timeout=10) == 1
    wait_for(lambda: [each.state for each in holders(first, tasks.collecting.name)] == ["K"], 5)
    after = tasks.collecting.delay(key, 3)
    assert [each.outcome for each in (during, after)] == ["suppressed"] * 2
    assert {during.id, after.id} == {first.id}
    assert release(tasks.collecting.s(key))[0].id == first.id
    last = tasks.collecting.delay(key, 4)
    assert last.get(timeout=10) == 4
    assert place.values(key) == [1, 4]
    assert release(tasks.collecting.s(key))[0].id == last.id


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A strategy that only this process can import."""
    module = types.ModuleType("gone_strategies")
    cls = type("Gone", (tasks.Soon,), {"__module__": module.__name__, "__qualname__": "Gone"})
    module.Gone = cls  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return cls()


def test_a_worker_that_cannot_import_a_strategy_puts_the_start_off_and_says_so(
    place: Place, gone: Any
) -> None:
    key, _ = running(place, tasks.own_way)
    second = tasks.own_way.apply_async((key, 2), unique={"on_conflict": gone})
    place.worker.wait_for_log("Nothing here has imported gone_strategies")
    assert "a start is put off, because this worker cannot make the strategy" in place.worker.log
    place.let_end(key)
    assert second.get(timeout=20) == 2
    assert place.journal.overlaps(key) == []
