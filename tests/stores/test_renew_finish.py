"""The verbs renew and finish."""

from __future__ import annotations

import pytest

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Marker, Ref
from django_jobdedup.stores.requests import Claim, Token
from django_jobdedup.stores.results import (
    Acquired,
    Busy,
    Claimed,
    Done,
    HandedOver,
    Held,
    Kept,
    Lost,
    NotMine,
    Overdue,
    Released,
    Renewed,
)

from .bench import NOON, REF, Bench


def test_a_renewed_lease_counts_from_now(bench: Bench) -> None:
    bench.run("a", lease=30)
    bench.advance(20)
    assert bench.renew("a", lease=30) == Renewed()
    assert bench.holder("a").lease == NOON + 50


def test_a_lapsed_lease_that_nobody_took_is_renewed(bench: Bench) -> None:
    bench.run("a", lease=30)
    bench.advance(100)
    assert bench.renew("a") == Renewed()
    assert isinstance(bench.acquire("b"), Held)


@pytest.mark.parametrize("state", ["none", "P", "W", "other nonce", "K"])
def test_only_the_own_running_delivery_renews(bench: Bench, state: str) -> None:
    if state != "none":
        bench.acquire("a")
    if state == "W":
        bench.confirm("a")
    if state in ("other nonce", "K"):
        bench.run("a", "other")
    if state == "K":
        bench.finish("a", "other", How.KEEP)
    before = bench.holders()
    assert bench.renew("a", "one") == Lost()
    assert bench.holders() == before


def test_a_lease_that_was_taken_is_lost(bench: Bench) -> None:
    bench.run("a", "one", lease=30)
    bench.advance(30)
    bench.run("a", "two", lease=30)
    assert bench.renew("a", "one") == Lost()
    assert bench.renew("a", "two") == Renewed()


@pytest.mark.parametrize("ended", [False, True])
def test_a_late_ack_run_whose_place_at_the_gate_was_taken_is_lost_for_good(bench: Bench, ended: bool) -> None:
    """Its seat waits for its redelivery, but the paused first copy must not believe that it was alone."""
    bench.run("a", "one", late=7200)
    bench.advance(40)
    bench.run("b", "two", late=7200)
    if ended:
        assert bench.finish("b", "two") == Released()
    assert bench.renew("a", "one") == Lost()
    bench.run("a", "three") if ended else None
    assert bench.renew("a", "three") == (Renewed() if ended else Lost())


def test_a_lapsed_run_with_room_at_the_gate_is_renewed(bench: Bench) -> None:
    bench.run("a", "one", late=7200, gate=2)
    bench.advance(40)
    bench.run("b", "two", late=7200, gate=2)
    assert bench.renew("a", "one") == Renewed()


def test_a_run_whose_place_was_taken_still_gives_its_own_seat_back(bench: Bench) -> None:
    bench.run("a", "one", late=7200)
    bench.advance(40)
    bench.run("b", "two", late=7200)
    assert bench.finish("a", "one") == Released()
    assert [holder.id for holder in bench.holders()] == ["b"]


def test_many_leases_are_renewed_at_once_across_shards(bench: Bench) -> None:
    far = Ref(3, "a" * 64)
    bench.run("a", "one")
    bench.store.claim(Claim(far, "b", 0, "two"))
    tokens = [Token(far, "b", "two"), Token(REF, "nobody", "x"), Token(REF, "a", "one")]
    assert bench.store.renew(tokens) == [Renewed(), Lost(), Renewed()]


def test_two_lapsed_runs_of_one_lock_are_renewed_together(bench: Bench) -> None:
    """One must not sweep the other."""
    bench.run("a", "one", gate=2)
    bench.run("b", "two", gate=2)
    bench.advance(100)
    tokens = [Token(REF, "a", "one"), Token(REF, "b", "two")]
    assert bench.store.renew(tokens) == [Renewed(), Renewed()]


# --- finish by the owner ------------------------------------------------------------------------------


def test_a_release_frees_the_seat_and_closes_the_id(bench: Bench) -> None:
    bench.run("a")
    assert bench.finish("a", marker_ttl=60) == Released()
    assert bench.holders() == ()
    assert bench.marker("a") == Marker(final=True)
    bench.advance(59.999)
    assert bench.marker("a") == Marker(final=True)
    bench.advance(0.001)
    assert bench.marker("a") is None
    assert bench.record() is None


def test_a_lapsed_run_that_nobody_took_still_ends_as_its_own(bench: Bench) -> None:
    bench.run("a", lease=30)
    bench.advance(100)
    assert bench.finish("a") == Released()
    assert bench.events() == []


def test_keep_holds_the_key_until_its_ttl(bench: Bench) -> None:
    bench.wait("a", due_in=60, ttl=1000)
    bench.run("a", ttl=1000)
    assert bench.finish("a", how=How.KEEP) == Kept()
    holder = bench.holder("a")
    assert (holder.state, holder.until, holder.nonce, holder.args) == ("K", NOON + 1060, "", None)
    assert bench.marker("a") == Marker(final=True)
    assert isinstance(bench.acquire("b", counts="PWRK"), Held)
    assert isinstance(bench.claim("c", "two", gate=1), Claimed), "nothing runs"


@pytest.mark.parametrize("how", [How.HANDOVER, How.REQUEUE])
def test_a_hand_over_keeps_the_seat_for_the_next_message(bench: Bench, how: How) -> None:
    bench.run("a", ttl=100)
    bench.advance(50)
    assert bench.finish("a", how=how) == HandedOver()
    holder = bench.holder("a")
    assert (holder.state, holder.nonce, holder.lease) == ("W", "", 0)
    assert (holder.since, holder.until) == (NOON + 50, NOON + 150), "the next message waits from now"
    assert isinstance(bench.acquire("b"), Held)


def test_a_hand_over_to_a_retry_with_an_eta_waits_from_the_eta(bench: Bench) -> None:
    bench.run("a", ttl=100)
    bench.again("a", due_in=600, ttl=100)
    bench.finish("a", how=How.HANDOVER)
    assert bench.holder("a").until == NOON + 700


def test_a_hand_over_ends_the_attempt_a_requeue_does_not(bench: Bench) -> None:
    bench.run("a", n=2)
    bench.finish("a", how=How.HANDOVER, n=2)
    assert bench.marker("a") == Marker(n=2)
    bench.run("b", gate=0)
    bench.finish("b", how=How.REQUEUE)
    assert bench.marker("b") is None
    assert isinstance(bench.claim("b", "two", gate=0), Claimed)


def test_arguments_survive_a_hand_over(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.run("a", "one")
    bench.finish("a", how=How.HANDOVER)
    assert bench.run("a", "two", n=1).args == b"1"


def test_starts_are_counted_over_hand_overs(bench: Bench) -> None:
    bench.run("a", "one")
    bench.finish("a", how=How.REQUEUE)
    assert bench.run("a", "two").starts == 2


# --- finish by somebody else ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", list(How))
def test_who_does_not_hold_it_frees_nothing_and_leaves_an_event(bench: Bench, how: How) -> None:
    bench.run("a", "one", lease=30)
    bench.advance(30)
    bench.run("a", "two", lease=30)
    before = bench.holders()
    assert bench.finish("a", "one", how) == NotMine()
    assert bench.holders() == before
    assert bench.events() == [("lock_lost", "a")]


@pytest.mark.parametrize("how", list(How))
def test_a_finish_without_any_holder_is_not_mine(bench: Bench, how: How) -> None:
    assert bench.finish("a", "one", how, n=1) == NotMine()
    assert bench.marker("a") == (None if how is How.REQUEUE else Marker(n=1))


def test_the_end_of_a_paused_copy_closes_its_attempt_only(bench: Bench) -> None:
    bench.run("a", "one", lease=30)
    bench.advance(30)
    bench.run("a", "two", lease=30)
    bench.finish("a", "one", n=0)
    assert bench.marker("a") == Marker(n=0)
    bench.again("a")
    bench.finish("a", "two", How.HANDOVER, n=0)
    assert isinstance(bench.claim("a", "three", n=1), Claimed)


def test_the_marker_never_goes_back(bench: Bench) -> None:
    bench.finish("a", "x", n=3, marker_ttl=600)
    bench.finish("a", "y", n=1, marker_ttl=60)
    assert bench.marker("a") == Marker(n=3)
    bench.advance(599)
    assert bench.marker("a") == Marker(n=3), "nor does its time"


def test_a_stranger_does_not_reopen_what_has_ended_for_good(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a")
    bench.finish("a", "stranger", n=0)
    assert bench.marker("a") == Marker(final=True)


def test_a_stranger_does_not_hide_who_superseded(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.confirm("b")
    bench.finish("a", "stranger")
    assert bench.marker("a") == Marker(superseded_by="b")


def test_the_owner_closes_the_id_after_a_stranger_closed_the_attempt(bench: Bench) -> None:
    bench.run("a", "one")
    bench.finish("a", "stranger", n=4)
    bench.finish("a", "one")
    assert bench.marker("a") == Marker(final=True)


def test_finish_sweeps_the_dead(bench: Bench) -> None:
    bench.acquire("a")
    bench.run("b", gate=0, lease=300)
    bench.advance(20)
    bench.finish("b", how=How.HANDOVER)
    assert bench.states() == {"b": "W"}
    bench.acquire("c", limit=9)
    bench.advance(20)
    bench.finish("stranger", "x")
    assert bench.states() == {"b": "W"}


def test_waiting_is_not_running(bench: Bench) -> None:
    bench.wait("a")
    assert bench.finish("a", "") == NotMine()
    assert bench.states() == {"a": "W"}


# --- fences ---------------------------------------------------------------------------------------------


def test_fences_rise_through_release_and_lapse_within_one_moment(bench: Bench) -> None:
    fences = []
    for number in range(5):
        fences.append(bench.run(f"id{number}", f"n{number}").fence)
        bench.finish(f"id{number}", f"n{number}")
    assert fences == sorted(set(fences))
    bench.run("late", "one", lease=1)
    bench.advance(1)
    assert bench.run("late", "two").fence > fences[-1]


def test_fences_rise_while_the_clock_goes_back(bench: Bench) -> None:
    first = bench.run("a").fence
    bench.advance(-60)
    bench.finish("a")
    assert bench.run("b", "two").fence == first + 1


def test_fences_rise_over_a_new_seat_of_the_same_job(bench: Bench) -> None:
    first = bench.run("a").fence
    bench.store.remove(REF, bench.holder("a"))
    bench.again("a")
    assert bench.holder("a").fence == 0
    assert bench.run("a", "two").fence == first + 1


def test_a_fence_is_exact_to_the_microsecond(bench: Bench) -> None:
    bench.advance(0.123457)
    assert bench.run("a").fence == 1_800_000_000_123_457


def test_busy_after_a_repeated_start(bench: Bench) -> None:
    """The issue's three: release by token, claim by nonce, hand-over."""
    bench.run("a", "one")
    assert isinstance(bench.claim("a", "two"), Busy)
    assert bench.finish("a", "two") == NotMine()
    assert isinstance(bench.acquire("b"), Held)
    bench.finish("a", "one", How.HANDOVER)
    assert isinstance(bench.acquire("b"), Held)
    assert bench.claim("a", "three", n=0) == Done()
    bench.run("a", "four", n=1)
    bench.finish("a", "four", n=1)
    assert isinstance(bench.acquire("b"), Acquired)


# --- who could start now ----------------------------------------------------------------------------


def waiter(id: str, n: int, args: bytes) -> Overdue:
    return Overdue(REF, id, n, args, "shop.recompute")


@pytest.mark.parametrize(("how", "answer"), [(How.RELEASE, Released), (How.KEEP, Kept)])
def test_the_end_of_a_run_names_the_oldest_job_whose_call_is_stored(
    bench: Bench, how: How, answer: type[Released | Kept]
) -> None:
    bench.run("a")
    bench.merge("b", b"1")
    bench.confirm("b")
    bench.merge("c", b"2")
    assert bench.finish("a", how=how) == answer(waiter("b", 0, b"2"))
    assert bench.finish("a", how=how) == answer(waiter("b", 0, b"2")), "the reply was lost"


def test_a_job_that_waits_for_its_retry_is_named_with_its_next_attempt(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.run("a")
    bench.finish("a", how=How.HANDOVER)
    bench.run("b")
    assert bench.finish("b") == Released(waiter("a", 1, b"1"))


def test_who_is_not_due_or_has_no_stored_call_is_not_named(bench: Bench) -> None:
    bench.run("a")
    bench.merge("b", b"1", due_in=60)
    bench.confirm("b")
    bench.wait("c", counts="")
    assert bench.finish("a") == Released()


def test_who_is_not_known_to_have_a_message_is_not_named(bench: Bench) -> None:
    bench.run("a")
    bench.merge("b", b"1")
    assert bench.finish("a") == Released()


def test_a_hand_over_names_nobody(bench: Bench) -> None:
    bench.run("a")
    bench.merge("b", b"1")
    bench.confirm("b")
    assert bench.finish("a", how=How.HANDOVER) == HandedOver()
