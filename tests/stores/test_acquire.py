"""The verb acquire: each row of its table, on both stores."""

from __future__ import annotations

import pytest

from django_jobdedup.outcomes import How
from django_jobdedup.stored_call.parts import framed
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import Acquired, Confirmed, Held, Merged, Outside, Superseded

from .bench import NOON, OTHER, REF, Bench


def test_a_free_record_is_acquired_as_pending_with_the_time_of_acceptance(bench: Bench) -> None:
    assert bench.acquire("a", pending=15, due_in=60, ttl=100) == Acquired(NOON)
    (holder,) = bench.holders()
    assert (holder.id, holder.state, holder.by) == ("a", "P", "web@1")
    assert (holder.since, holder.until, holder.due, holder.ttl) == (NOON, NOON + 15, NOON + 60, 100)
    record = bench.record()
    assert record is not None
    assert (record.name, record.now) == ("shop.recompute", NOON)


@pytest.mark.parametrize("state", ["P", "W", "R", "K"])
@pytest.mark.parametrize("counts", ["", "PW", "PWR", "PWRK"])
def test_the_states_in_counts_refuse_and_no_others(bench: Bench, state: str, counts: str) -> None:
    in_state(bench, "a", state)
    answer = bench.acquire("b", counts=counts)
    if state in counts:
        assert isinstance(answer, Held)
        assert (answer.id, answer.state) == ("a", state)
    else:
        assert answer == Acquired(NOON)


def in_state(bench: Bench, id: str, state: str) -> None:
    """Bring a new holder into a state."""
    bench.acquire(id)
    if state == "W":
        bench.confirm(id)
    elif state in "RK":
        bench.run(id)
        if state == "K":
            bench.finish(id, how=How.KEEP)


def test_a_refusal_says_who_holds_it_since_when_and_until_when(bench: Bench) -> None:
    bench.wait("a", ttl=100)
    assert bench.acquire("b", by="beat@1") == Held("a", "W", NOON, NOON + 100, "web@1")
    bench.advance(3)
    bench.run("a", lease=30)
    assert bench.acquire("b") == Held("a", "R", NOON + 3, NOON + 33, "worker@1")


def test_a_late_holder_is_announced_until_its_redelivery_is_overdue(bench: Bench) -> None:
    bench.run("a", lease=30, late=7200, ttl=60)
    assert bench.acquire("b") == Held("a", "R", NOON, NOON + 7200, "worker@1")


def test_refusals_are_counted_on_the_holder_that_is_reported(bench: Bench) -> None:
    bench.acquire("a", limit=2)
    bench.acquire("b", limit=2)
    for id in ("c", "d"):
        answer = bench.acquire(id, limit=2)
        assert isinstance(answer, Held)
        assert answer.id == "a", "the oldest"
    assert [holder.refused for holder in bench.holders()] == [2, 0]


def test_limit_is_the_number_of_seats(bench: Bench) -> None:
    for id in ("a", "b", "c"):
        assert isinstance(bench.acquire(id, limit=3), Acquired)
    assert isinstance(bench.acquire("d", limit=3), Held)


def test_a_repeated_acquire_is_not_refused_by_itself_and_is_pending_anew(bench: Bench) -> None:
    bench.acquire("a", pending=15)
    bench.advance(10)
    assert bench.acquire("a", pending=15) == Acquired(NOON)
    assert bench.holder("a").until == NOON + 25


def test_a_lapsed_pending_holder_takes_its_own_seat_again(bench: Bench) -> None:
    bench.acquire("a", pending=15)
    bench.advance(20)
    assert isinstance(bench.acquire("a", pending=15), Acquired)
    assert bench.states() == {"a": "P"}
    assert bench.events() == []


def test_a_waiting_holder_that_asks_again_changes_nothing(bench: Bench) -> None:
    bench.wait("a")
    before = bench.holders()
    bench.advance(5)
    assert bench.acquire("a") == Acquired(NOON)
    assert bench.holders() == before


def test_a_retry_arms_its_running_seat_until_the_retry_is_due(bench: Bench) -> None:
    bench.run("a", lease=30)
    assert bench.holder("a").until == 0
    assert bench.again("a", due_in=60, ttl=100) == Acquired(NOON)
    holder = bench.holder("a")
    assert (holder.state, holder.due, holder.until) == ("R", NOON + 60, NOON + 160)


def test_a_retry_does_not_shorten_what_late_ack_gave(bench: Bench) -> None:
    bench.run("a", late=7200, ttl=60)
    bench.again("a", due_in=0, ttl=60)
    assert bench.holder("a").until == NOON + 7200


def test_a_fresh_call_with_the_id_of_a_running_job_changes_nothing(bench: Bench) -> None:
    bench.run("a")
    before = bench.holders()
    assert isinstance(bench.acquire("a"), Acquired)
    assert bench.holders() == before


def test_a_retry_whose_lock_was_lost_takes_a_free_one(bench: Bench) -> None:
    assert bench.again("a") == Acquired(NOON)
    assert bench.states() == {"a": "P"}


@pytest.mark.parametrize("on_waiting", ["keep", "merge", "over", "soonest"])
def test_a_retry_is_never_refused_but_goes_outside_the_lock(bench: Bench, on_waiting: str) -> None:
    bench.wait("b")
    before = bench.holders()
    assert bench.again("a", on_waiting=on_waiting, args=b"new") == Outside()
    assert bench.holders() == before


def test_an_id_that_has_ended_for_good_goes_outside(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a")
    assert bench.acquire("a") == Outside()
    assert bench.again("a") == Outside()
    assert bench.holders() == ()


@pytest.mark.parametrize("again", [False, True])
def test_an_id_that_was_superseded_goes_outside_even_if_nobody_holds(bench: Bench, again: bool) -> None:
    """Its claim starts nothing, so nothing would give back a seat that it takes."""
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.run("b")
    bench.finish("b")
    assert bench.acquire("a", again=again) == Outside()
    assert bench.states() == {}
    assert bench.claim("a") == Superseded("b")
    assert isinstance(bench.acquire("c"), Acquired)


def test_an_id_whose_attempt_has_ended_may_come_again(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a", how=How.HANDOVER)
    assert isinstance(bench.again("a"), Acquired)


def test_a_received_message_waits_at_once(bench: Bench) -> None:
    assert isinstance(bench.acquire("a", received=True, due_in=60, ttl=100), Acquired)
    assert (bench.holder("a").state, bench.holder("a").until) == ("W", NOON + 160)


def test_a_received_message_of_a_pending_holder_confirms_it(bench: Bench) -> None:
    bench.acquire("a", ttl=100)
    bench.acquire("a", received=True)
    assert (bench.holder("a").state, bench.holder("a").until) == ("W", NOON + 100)


def test_a_received_newcomer_supersedes_at_once(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over", received=True)
    assert bench.states() == {"b": "W"}
    assert bench.marker("a").superseded_by == "b"


# --- on waiting: merge -----------------------------------------------------------------------------


def test_a_merged_call_leaves_the_newest_arguments(bench: Bench) -> None:
    assert isinstance(bench.merge("a", b"1"), Acquired)
    bench.confirm("a")
    assert bench.merge("b", b"2") == Merged("a", 0, publish=False)
    assert bench.merge("c", b"3") == Merged("a", 0, publish=False)
    (holder,) = bench.holders()
    assert (holder.id, holder.args, holder.merged) == ("a", b"3", 2)
    assert bench.run("a").args == b"3"


def test_a_merged_call_leaves_its_arguments_and_no_more(bench: Bench) -> None:
    own, other = (framed(name + b"\n\x1f\xff", name * 3 + b"\x1f\n") for name in (b"own", b"oth"))
    mixed = framed(b"own\n\x1f\xff", b"othothoth\x1f\n")
    bench.merge("a", own, due_in=60)
    bench.confirm("a")
    assert bench.merge("b", other, due_in=90) == Merged("a", 0, publish=False)
    assert bench.holder("a").args == mixed
    assert bench.merge("c", other, due_in=10) == Merged("a", 0, True, 60.0, 10.0, mixed)
    assert bench.merge("c", other, due_in=10) == Merged("a", 0, True, 60.0, 10.0, mixed), "a lost reply"
    assert bench.run("a").args == mixed


def test_a_job_without_a_call_is_lent_that_of_the_first_that_joins(bench: Bench) -> None:
    one, two = framed(b"one", b"1"), framed(b"two", b"2")
    bench.wait("a")
    bench.merge("b", one)
    bench.merge("c", two)
    assert bench.holder("a").args == framed(b"one", b"2")


def test_a_merge_without_arguments_keeps_those_that_are_there(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.acquire("b", counts="PW", on_waiting="merge")
    assert bench.holder("a").args == b"1"


def test_empty_arguments_are_arguments(bench: Bench) -> None:
    bench.merge("a", b"")
    assert bench.holder("a").args == b""
    assert bench.run("a").args == b""


def test_nothing_merges_into_a_running_holder(bench: Bench) -> None:
    """It has read the old data: the call would be lost."""
    bench.run("a")
    answer = bench.acquire("b", counts="PWR", on_waiting="merge", args=b"2")
    assert isinstance(answer, Held)
    assert isinstance(bench.merge("c", b"3"), Acquired), "counts PW: one waiting beside the running"


def test_an_overdue_holder_is_published_by_the_call_that_merges_into_it(bench: Bench) -> None:
    bench.merge("a", b"1", pending=15)
    bench.advance(20)
    assert bench.merge("b", b"2", pending=15) == Merged("a", 0, True, call=b"2")
    holder = bench.holder("a")
    assert (holder.state, holder.until, holder.args) == ("P", NOON + 35, b"2")
    assert bench.merge("c", b"3") == Merged("a", 0, publish=False), "one copy is enough"


def test_the_copy_of_an_overdue_holder_waits_from_now_on(bench: Bench) -> None:
    """Else it would be overdue at once, and every further call would publish one more."""
    bench.merge("a", b"1", ttl=60)
    bench.confirm("a")
    bench.advance(100)
    assert bench.merge("b", b"2", ttl=60) == Merged("a", 0, True, call=b"2")
    assert bench.confirm("a") == Confirmed()
    assert (bench.holder("a").state, bench.holder("a").until) == ("W", NOON + 160)
    assert bench.merge("c", b"3", ttl=60) == Merged("a", 0, publish=False)


@pytest.mark.parametrize(("given", "kept"), [(b"other", b"other"), (b"", b""), (None, b"2")])
def test_a_retry_says_with_which_arguments_it_goes_on(bench: Bench, given: bytes | None, kept: bytes) -> None:
    """Empty ones: nothing is newer than what its own message says."""
    bench.merge("a", b"1")
    bench.merge("b", b"2")
    assert bench.run("a").args == b"2"
    bench.again("a", args=given)
    bench.finish("a", how=How.HANDOVER)
    assert bench.holder("a").args == kept
    assert bench.merge("c", b"3") == Merged("a", 1, publish=False)
    assert bench.run("a", "two", n=1).args == b"3"


def test_the_copy_of_an_overdue_holder_is_of_the_next_attempt(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.run("a", n=0)
    bench.finish("a", how=How.HANDOVER, n=0, marker_ttl=20_000)
    bench.advance(10_000)
    assert bench.merge("b", b"2") == Merged("a", 1, True, call=b"2")


def test_debounce_moves_the_start_with_every_call(bench: Bench) -> None:
    bench.merge("a", b"1", wait=30, ttl=100)
    bench.confirm("a")
    bench.advance(10)
    assert bench.merge("b", b"2", wait=30) == Merged("a", 0, publish=False)
    holder = bench.holder("a")
    assert (holder.first, holder.due, holder.until) == (NOON, NOON + 40, NOON + 140)


def test_debounce_waits_no_longer_than_its_bound(bench: Bench) -> None:
    bench.merge("a", b"1", wait=30, max_wait=50)
    for _ in range(3):
        bench.advance(20)
        bench.merge("b", b"2", wait=30, max_wait=50)
    assert bench.holder("a").due == NOON + 50


def test_the_first_debounced_call_obeys_the_bound_too(bench: Bench) -> None:
    bench.merge("a", b"1", wait=30, max_wait=20)
    assert bench.holder("a").due == NOON + 20


def test_a_start_moved_forward_needs_a_copy_of_the_message(bench: Bench) -> None:
    bench.merge("a", b"1", wait=60)
    bench.confirm("a")
    assert bench.merge("b", b"2", wait=5) == Merged("a", 0, True, 60.0, 5.0, b"2")
    assert bench.holder("a").due == NOON + 5


def test_a_pending_debounced_holder_stays_pending(bench: Bench) -> None:
    bench.merge("a", b"1", wait=30, pending=15)
    bench.advance(10)
    bench.merge("b", b"2", wait=30, pending=15)
    assert (bench.holder("a").state, bench.holder("a").until) == ("P", NOON + 15)


def test_a_rerun_may_bring_an_eta_forward_but_not_back(bench: Bench) -> None:
    bench.merge("a", b"1", due_in=60)
    bench.confirm("a")
    assert bench.merge("b", b"2", due_in=90) == Merged("a", 0, publish=False)
    assert bench.holder("a").due == NOON + 60
    assert bench.merge("c", b"3", due_in=0) == Merged("a", 0, True, 60.0, 0.0, b"3")
    assert bench.holder("a").due == NOON


def test_a_window_opens_anew_after_a_hand_over(bench: Bench) -> None:
    bench.merge("a", b"1", wait=30)
    bench.advance(30)
    bench.run("a")
    bench.finish("a", how=How.HANDOVER)
    bench.advance(5)
    bench.merge("b", b"2", wait=30, max_wait=40)
    holder = bench.holder("a")
    assert (holder.first, holder.due) == (NOON + 35, NOON + 65)


# --- on waiting: over and soonest -------------------------------------------------------------------


def test_a_newcomer_over_a_waiting_one_leaves_it_until_its_own_message_exists(bench: Bench) -> None:
    bench.wait("a")
    assert isinstance(bench.acquire("b", counts="PW", on_waiting="over"), Acquired)
    assert bench.states() == {"a": "W", "b": "P"}
    assert bench.holder("b").over == ("a",)
    assert bench.marker("a") is None


def test_a_newcomer_comes_over_all_that_wait(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.acquire("c", counts="PW", on_waiting="over")
    assert bench.holder("c").over == ("a", "b")


def test_nothing_comes_over_a_running_holder(bench: Bench) -> None:
    bench.run("a")
    assert isinstance(bench.acquire("b", counts="PWR", on_waiting="over"), Held)


@pytest.mark.parametrize(("due_in", "wins"), [(10, True), (60, False), (90, False)])
def test_soonest_replaces_only_what_is_due_later(bench: Bench, due_in: float, wins: bool) -> None:
    bench.wait("a", due_in=60)
    answer = bench.acquire("b", counts="PW", on_waiting="soonest", due_in=due_in)
    assert isinstance(answer, Acquired if wins else Held)
    if wins:
        assert bench.confirm("b") == Confirmed()
        assert bench.states() == {"b": "W"}


def test_soonest_is_refused_in_favour_of_the_one_that_is_due_first(bench: Bench) -> None:
    """The one that waits longest may be about to be replaced: its id would run nothing."""
    bench.wait("a", due_in=60)
    assert isinstance(bench.acquire("b", counts="PW", on_waiting="soonest", due_in=20), Acquired)
    answer = bench.acquire("c", counts="PW", on_waiting="soonest", due_in=40)
    assert isinstance(answer, Held)
    assert answer.id == "b"


def test_soonest_beside_a_running_holder_is_refused(bench: Bench) -> None:
    bench.run("a")
    assert isinstance(bench.acquire("b", counts="PWR", on_waiting="soonest"), Held)


# --- lapse ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "life", "event"),
    [("P", 15, "abandoned"), ("W", 5400, "lapsed"), ("R", 30, "lost"), ("K", 5400, "lapsed")],
)
def test_a_lapsed_holder_frees_its_seat_and_leaves_an_event(
    bench: Bench, state: str, life: float, event: str
) -> None:
    in_state(bench, "a", state)
    bench.advance(life - 0.001)
    assert isinstance(bench.acquire("b", counts="PWRK"), Held)
    bench.advance(0.001)
    assert isinstance(bench.acquire("c", counts="PWRK"), Acquired)
    assert bench.states() == {"c": "P"}
    assert bench.events() == [(event, "a")]
    assert bench.counted()[event] == 1


def test_a_waiting_holder_with_arguments_does_not_lapse(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.advance(100_000)
    assert isinstance(bench.acquire("b"), Held)
    assert bench.events() == []


def test_a_late_holder_keeps_its_seat_over_a_lapsed_lease(bench: Bench) -> None:
    bench.run("a", lease=30, late=7200, ttl=60)
    bench.advance(7199)
    assert isinstance(bench.acquire("b"), Held)
    bench.advance(1)
    assert isinstance(bench.acquire("b"), Acquired)


def test_the_sweep_reaches_every_dead_holder(bench: Bench) -> None:
    bench.acquire("a", limit=2)
    bench.acquire("b", limit=2)
    bench.advance(20)
    assert isinstance(bench.acquire("c"), Acquired)
    assert bench.states() == {"c": "P"}
    assert bench.events() == [("abandoned", "a"), ("abandoned", "b")]


def test_a_refusal_sweeps_too(bench: Bench) -> None:
    bench.acquire("a", limit=2)
    bench.wait("b", limit=2)
    bench.advance(20)
    assert isinstance(bench.acquire("c"), Held)
    assert bench.states() == {"b": "W"}
    bench.acquire("d", limit=2)
    bench.advance(20)
    assert bench.again("e") == Outside()
    assert bench.states() == {"b": "W"}


def test_an_own_unchanged_holder_does_not_keep_the_dead_of_others(bench: Bench) -> None:
    bench.acquire("a", limit=2)
    bench.wait("b", limit=2)
    bench.advance(20)
    assert isinstance(bench.acquire("b", limit=2), Acquired)
    assert bench.states() == {"b": "W"}


# --- many -------------------------------------------------------------------------------------------


def test_many_are_decided_in_order_and_answered_in_order(bench: Bench) -> None:
    def request(ref: Ref, id: str) -> Acquire:
        return Acquire(ref, id)

    far = Ref(3, "a" * 64)
    requests = [request(REF, "a"), request(far, "b"), request(REF, "c"), request(OTHER, "d")]
    first, second, third, fourth = bench.store.acquire_many(requests)
    assert [first, second, fourth] == [Acquired(NOON)] * 3
    assert isinstance(third, Held)
    assert third.id == "a"


def test_a_mixture_with_and_without_arguments_is_kept_apart(bench: Bench) -> None:
    refs = [Ref(7, f"{number:064}") for number in range(4)]
    args = [b"zero", None, b"", b"three"]
    requests = [Acquire(ref, f"id{i}", args=a) for i, (ref, a) in enumerate(zip(refs, args, strict=True))]
    assert bench.store.acquire_many(requests) == [Acquired(NOON)] * 4
    kept = [bench.store.inspect(ref) for ref in refs]
    assert [record.holders[0].args for record in kept if record] == args


def test_more_than_a_thousand_of_one_shard_are_answered(bench: Bench) -> None:
    requests = [Acquire(Ref(7, f"{number:064}"), f"id{number}") for number in range(2500)]
    assert bench.store.acquire_many(requests) == [Acquired(NOON)] * 2500
    again = bench.store.acquire_many([Acquire(r.ref, "x" + r.id) for r in requests])
    assert [answer.id for answer in again if isinstance(answer, Held)] == [r.id for r in requests]


def test_none_are_answered_with_none(bench: Bench) -> None:
    assert bench.store.acquire_many([]) == []
    assert bench.store.confirm([]) == []
    assert bench.store.renew([]) == []


def test_text_beyond_ascii_and_with_blanks_comes_back(bench: Bench) -> None:
    bench.acquire("id mit Ü \u2028", name="größe der welt", by="würfel 1@host")
    answer = bench.acquire("b")
    assert isinstance(answer, Held)
    assert (answer.id, answer.by) == ("id mit Ü \u2028", "würfel 1@host")
    assert bench.record().name == "größe der welt"
