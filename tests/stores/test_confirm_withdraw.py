"""The verbs confirm and withdraw."""

from __future__ import annotations

import pytest

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Marker, Ref
from django_jobdedup.stores.results import (
    Acquired,
    Claimed,
    Confirmed,
    Done,
    Gone,
    Held,
    Owed,
    Superseded,
    Withdrawn,
)

from .bench import NOON, REF, Bench


def test_a_confirmed_holder_waits_for_its_ttl_counted_from_when_it_is_due(bench: Bench) -> None:
    bench.acquire("a", due_in=60, ttl=100)
    assert bench.confirm("a") == Confirmed()
    assert (bench.holder("a").state, bench.holder("a").until) == ("W", NOON + 160)


def test_confirm_creates_nothing(bench: Bench) -> None:
    assert bench.confirm("a") == Gone()
    assert bench.record() is None


def test_a_late_confirm_still_finds_its_lapsed_holder(bench: Bench) -> None:
    bench.acquire("a", pending=15, ttl=100)
    bench.advance(20)
    assert bench.confirm("a") == Confirmed()
    assert (bench.holder("a").state, bench.holder("a").until) == ("W", NOON + 100)


@pytest.mark.parametrize("state", ["W", "R", "K"])
def test_confirm_of_another_state_changes_nothing(bench: Bench, state: str) -> None:
    bench.wait("a")
    if state in "RK":
        bench.run("a")
    if state == "K":
        bench.finish("a", how=How.KEEP)
    before = bench.holders()
    bench.advance(1)
    assert bench.confirm("a") == Confirmed()
    assert bench.holders() == before


def test_many_are_confirmed_at_once_across_shards(bench: Bench) -> None:
    far = Ref(3, "a" * 64)
    bench.acquire("a")
    bench.acquire("b", ref=far)
    seats = [(REF, "a"), (far, "b"), (REF, "nobody")]
    assert bench.store.confirm(seats) == [Confirmed(), Confirmed(), Gone()]


def test_confirm_supersedes_what_it_came_over(bench: Bench) -> None:
    bench.wait("a", due_in=60, ttl=100)
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.confirm("b")
    assert bench.states() == {"b": "W"}
    assert bench.holder("b").over == ()
    assert bench.marker("a") == Marker(superseded_by="b")
    assert bench.claim("a") == Superseded("b")
    assert bench.events() == [("superseded", "a")]


def test_a_superseded_message_is_known_until_it_can_be_no_more(bench: Bench) -> None:
    bench.wait("a", due_in=60, ttl=100)
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.confirm("b")
    bench.advance(159)
    assert bench.claim("a") == Superseded("b")
    bench.advance(1)
    assert bench.marker("a") is None


def test_a_pending_holder_is_superseded_too(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.confirm("b")
    assert bench.confirm("a") == Gone()
    assert bench.claim("a") == Superseded("b")


def test_a_running_holder_is_followed_not_replaced(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.run("a")
    bench.confirm("b")
    assert bench.states() == {"a": "R", "b": "W"}
    assert bench.marker("a") is None


def test_a_newcomer_that_was_run_at_once_is_confirmed_late(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.run("b")
    assert bench.states() == {"b": "R"}
    assert bench.confirm("b") == Confirmed()
    assert bench.states() == {"b": "R"}


def test_confirm_gives_a_republished_intent_its_time_again(bench: Bench) -> None:
    bench.merge("a", b"1", ttl=100)
    bench.advance(50)
    bench.reap()
    assert bench.holder("a").state == "W"
    assert bench.confirm("a") == Confirmed()
    assert bench.holder("a").until == NOON + 150


# --- withdraw: the publish failed -------------------------------------------------------------------


def test_a_withdrawn_holder_is_gone_and_tells_how_many_it_refused(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")
    assert bench.withdraw("a") == Withdrawn(2)
    assert bench.holders() == ()
    assert bench.events() == [("withdrawn", "a")]
    assert isinstance(bench.acquire("d"), Acquired)


def test_a_withdrawal_without_refusals_is_no_event(bench: Bench) -> None:
    bench.acquire("a")
    assert bench.withdraw("a") == Withdrawn(0)
    assert bench.events() == []


def test_a_message_that_went_out_after_all_runs(bench: Bench) -> None:
    bench.acquire("a")
    bench.withdraw("a")
    assert bench.marker("a") is None
    assert isinstance(bench.claim("a"), Claimed)


def test_an_id_may_be_published_again_after_its_withdrawal(bench: Bench) -> None:
    bench.acquire("a")
    bench.withdraw("a")
    assert isinstance(bench.acquire("a"), Acquired)
    assert bench.withdraw("a") == Withdrawn(0)


@pytest.mark.parametrize("state", ["none", "W", "R"])
def test_only_a_pending_holder_is_withdrawn(bench: Bench, state: str) -> None:
    if state != "none":
        bench.wait("a")
    if state == "R":
        bench.run("a")
    before = bench.holders()
    assert bench.withdraw("a") == Gone()
    assert bench.holders() == before


def test_what_others_merged_into_is_owed(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.merge("b", b"2")
    assert bench.withdraw("a") == Owed()
    assert bench.holder("a").args == b"2"
    (overdue,) = bench.reap().overdue
    assert (overdue.id, overdue.args, overdue.n) == ("a", b"2", 0)


def test_a_withdrawal_does_not_take_an_ended_attempt_back(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a", nonce="stranger", n=3)
    bench.finish("a", how=How.HANDOVER)
    bench.advance(10_000)
    bench.acquire("other", ttl=1)
    bench.withdraw("other")
    bench.finish("a", nonce="stranger", n=3)
    assert isinstance(bench.again("a"), Acquired)
    assert bench.withdraw("a") == Withdrawn(0)
    assert bench.marker("a") == Marker(n=3)


def test_a_withdrawal_sweeps_the_dead(bench: Bench) -> None:
    bench.acquire("a")
    bench.advance(20)
    assert bench.withdraw("b") == Gone()
    assert bench.holders() == ()


# --- withdraw: the message was revoked, has expired, is skipped ---------------------------------------


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_revoked_message_frees_its_seat_and_closes_its_id(bench: Bench, confirmed: bool) -> None:
    bench.acquire("a")
    if confirmed:
        bench.confirm("a")
    assert isinstance(bench.acquire("b"), Held)
    assert bench.withdraw("a", waiting=True) == Withdrawn(1)
    assert bench.marker("a") == Marker(final=True)
    assert bench.claim("a") == Done()
    assert isinstance(bench.acquire("c"), Acquired)


def test_a_revoked_message_without_a_holder_closes_its_id(bench: Bench) -> None:
    assert bench.withdraw("a", waiting=True) == Withdrawn(0)
    assert bench.claim("a") == Done()


def test_a_revoked_copy_of_an_ended_attempt_touches_nothing(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a", how=How.HANDOVER)
    assert bench.withdraw("a", n=0, waiting=True) == Gone()
    assert bench.states() == {"a": "W"}
    assert bench.withdraw("a", n=1, waiting=True) == Withdrawn(0)
    assert bench.marker("a") == Marker(final=True)


def test_a_revoked_copy_of_a_running_job_touches_nothing(bench: Bench) -> None:
    bench.run("a")
    assert bench.withdraw("a", waiting=True) == Gone()
    assert bench.states() == {"a": "R"}
    assert bench.marker("a") is None


def test_a_revoked_copy_of_a_superseded_message_touches_nothing(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.confirm("b")
    assert bench.withdraw("a", waiting=True) == Gone()
    assert bench.marker("a") == Marker(superseded_by="b")


def test_a_later_copy_of_a_skipped_start_says_who_covers_it(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("c")
    assert bench.withdraw("a", waiting=True, by="b", marker_ttl=50) == Withdrawn(1)
    assert bench.withdraw("a", waiting=True, by="b", marker_ttl=50) == Withdrawn(1)
    assert bench.states() == {}
    assert bench.marker("a") == Marker(superseded_by="b")
    assert bench.claim("a") == Superseded("b")
    bench.advance(49)
    assert bench.claim("a") == Superseded("b")


def test_a_revoked_copy_of_a_job_that_has_ended_for_good_touches_nothing(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a")
    assert bench.withdraw("a", n=5, waiting=True) == Gone()


def test_the_marker_of_a_revoked_message_lives_as_long_as_it_is_told(bench: Bench) -> None:
    bench.wait("a")
    bench.withdraw("a", waiting=True, marker_ttl=7200)
    bench.advance(7199)
    assert bench.claim("a") == Done()
    bench.advance(1)
    assert bench.marker("a") is None
