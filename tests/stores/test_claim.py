"""The verb claim: each row of its table, on both stores."""

from __future__ import annotations

import pytest

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Marker
from django_jobdedup.stores.results import (
    Acquired,
    Busy,
    Claimed,
    Done,
    Early,
    Exhausted,
    Held,
    Superseded,
)

from .bench import NOON, Bench


def test_a_waiting_message_gets_its_seat_with_a_lease(bench: Bench) -> None:
    bench.wait("a")
    bench.advance(5)
    answer = bench.claim("a", "one", lease=30, ttl=100)
    assert isinstance(answer, Claimed)
    assert (answer.at, answer.args, answer.starts) == (NOON + 5, None, 1)
    holder = bench.holder("a")
    assert (holder.state, holder.nonce, holder.lease, holder.until) == ("R", "one", NOON + 35, 0)
    assert (holder.since, holder.by, holder.ttl) == (NOON + 5, "worker@1", 100)
    assert holder.fence == answer.fence == (NOON + 5) * 1_000_000


@pytest.mark.parametrize("state", ["none", "P", "lapsed P", "lapsed W"])
def test_claim_works_on_pending_lapsed_and_missing_holders_alike(bench: Bench, state: str) -> None:
    if state != "none":
        bench.acquire("a", pending=15, ttl=100)
    if state.endswith("W"):
        bench.confirm("a")
    if state.startswith("lapsed"):
        bench.advance(200)
    bench.run("a")
    assert bench.states() == {"a": "R"}
    assert bench.events() == []


def test_a_superseded_message_learns_whom_to_follow(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.confirm("b")
    assert bench.claim("a", n=7) == Superseded("b")
    assert bench.states() == {"b": "W"}


def test_claim_supersedes_what_it_came_over(bench: Bench) -> None:
    """The newcomer's dispatcher died before it confirmed."""
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.run("b")
    assert bench.states() == {"b": "R"}
    assert bench.claim("a") == Superseded("b")


def test_a_superseded_message_gives_back_the_seat_that_an_older_version_gave_it(bench: Bench) -> None:
    bench.wait("a")
    bench.mark_superseded("a", "b")
    assert bench.claim("a") == Superseded("b")
    assert (bench.states(), bench.events()) == ({}, [("superseded", "a")])
    assert bench.claim("a") == Superseded("b"), "a lost reply"
    assert isinstance(bench.acquire("c"), Acquired)


def test_a_superseded_message_leaves_the_run_of_its_id_alone(bench: Bench) -> None:
    bench.run("a")
    bench.mark_superseded("a", "b")
    assert bench.claim("a", "two") == Superseded("b")
    assert bench.states() == {"a": "R"}


def test_a_copy_of_an_ended_job_does_not_start(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a", marker_ttl=60)
    assert bench.claim("a", "two") == Done()
    assert bench.claim("a", "two", n=9) == Done(), "final is for every attempt"
    bench.advance(60)
    assert isinstance(bench.claim("a", "two"), Claimed), "a copy later than its marker runs again"


def test_a_copy_of_an_ended_attempt_does_not_start_but_the_next_does(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a", how=How.HANDOVER, n=0)
    assert bench.claim("a", "two", n=0) == Done()
    assert isinstance(bench.claim("a", "two", n=1), Claimed)


def test_a_kept_job_does_not_start_again_after_its_marker(bench: Bench) -> None:
    bench.run("a", ttl=1000)
    bench.finish("a", how=How.KEEP, marker_ttl=60)
    bench.advance(100)
    assert bench.claim("a", "two") == Done()
    assert bench.states() == {"a": "K"}
    bench.advance(1000)
    assert isinstance(bench.claim("a", "two"), Claimed)


def test_the_same_delivery_may_ask_twice(bench: Bench) -> None:
    bench.merge("a", b"new")
    first = bench.run("a", "one", gate=1, max_starts=1)
    bench.advance(5)
    assert bench.claim("a", "one", gate=1, max_starts=1) == first
    assert first.args == b"new"


def test_the_same_delivery_keeps_its_seat_after_a_lapse_that_nobody_used(bench: Bench) -> None:
    first = bench.run("a", "one", lease=30)
    bench.advance(40)
    assert bench.claim("a", "one") == first


def test_the_same_delivery_in_another_process_waits_for_the_lease_as_any_other(bench: Bench) -> None:
    """Celery's pool hands a job on when a process died before it said that it had begun."""
    first = bench.run("a", "one", lease=30, by="worker@1")
    bench.advance(10)
    assert bench.claim("a", "one", by="worker@2") == Busy(own=True, retry_in=20.0, by="a")
    assert bench.claim("a", "one", by="worker@1") == first
    bench.advance(20)
    second = bench.run("a", "one", lease=30, by="worker@2", max_starts=2)
    assert (second.starts, second.fence > first.fence) == (2, True)
    bench.advance(30)
    assert bench.claim("a", "one", by="worker@3", max_starts=2) == Exhausted(2)


def test_another_delivery_of_a_running_id_waits_for_its_lease(bench: Bench) -> None:
    bench.run("a", "one", lease=30)
    bench.advance(10)
    assert bench.claim("a", "two") == Busy(own=True, retry_in=20.0, by="a")
    assert bench.holder("a").nonce == "one"


def test_another_delivery_takes_over_after_the_lease(bench: Bench) -> None:
    first = bench.run("a", "one", lease=30)
    bench.advance(30)
    second = bench.run("a", "two", lease=30)
    assert second.starts == 2
    assert second.fence > first.fence
    assert (bench.holder("a").nonce, len(bench.holders())) == ("two", 1)
    assert bench.events() == [], "its own id is not swept"


def test_a_debounced_message_that_comes_too_early_is_told_how_long(bench: Bench) -> None:
    bench.merge("a", b"1", wait=30)
    bench.advance(20)
    assert bench.claim("a") == Early(10.0)
    assert bench.holder("a").state == "P"
    bench.advance(10)
    assert bench.run("a").args == b"1"


def test_a_plain_eta_never_makes_early(bench: Bench) -> None:
    """The worker's clock decides that; it may be a little ahead of the store's."""
    bench.wait("a", due_in=60)
    assert isinstance(bench.claim("a"), Claimed)


def test_a_retry_of_a_debounced_job_is_not_early(bench: Bench) -> None:
    bench.merge("a", b"1", wait=30)
    bench.advance(30)
    bench.run("a")
    bench.again("a", due_in=60)
    bench.finish("a", how=How.HANDOVER)
    assert isinstance(bench.claim("a", "two", n=1), Claimed)


def test_the_gate_counts_live_runs_of_others(bench: Bench) -> None:
    bench.run("a", lease=30)
    bench.advance(10)
    assert bench.claim("b", "two", gate=1) == Busy(own=False, retry_in=20.0, by="a")
    assert bench.states() == {"a": "R"}
    bench.advance(20)
    assert isinstance(bench.claim("b", "two", gate=1), Claimed)


def test_the_gate_names_the_run_whose_lease_ends_first(bench: Bench) -> None:
    bench.run("a", "one", lease=30, gate=2)
    bench.run("b", "two", lease=10, gate=2)
    assert bench.claim("c", "three", gate=2) == Busy(own=False, retry_in=10.0, by="b")


def test_a_gate_of_two_lets_two_run(bench: Bench) -> None:
    bench.run("a", "one", gate=2)
    bench.run("b", "two", gate=2)
    assert isinstance(bench.claim("c", "three", gate=2), Busy)


def test_no_gate_lets_any_number_run(bench: Bench) -> None:
    for number in range(4):
        bench.run(f"id{number}", f"nonce{number}", gate=0)
    assert len(bench.holders()) == 4


def test_a_shut_gate_leaves_the_waiting_holder_as_it_is(bench: Bench) -> None:
    bench.run("a")
    bench.wait("b", counts="PW")
    before = bench.holders()
    assert isinstance(bench.claim("b", "two"), Busy)
    assert bench.holders() == before


def test_a_lapsed_late_run_keeps_its_seat_but_opens_the_gate(bench: Bench) -> None:
    bench.run("a", lease=30, late=7200)
    bench.advance(30)
    assert isinstance(bench.acquire("b"), Held)
    assert isinstance(bench.claim("c", "two", gate=1), Claimed)


def test_a_shut_gate_sweeps_the_dead(bench: Bench) -> None:
    bench.run("a", "one", lease=300, gate=0)
    bench.run("b", "two", lease=10, gate=0)
    bench.advance(20)
    assert isinstance(bench.claim("c", "three"), Busy)
    assert bench.states() == {"a": "R"}
    assert bench.events() == [("lost", "b")]


def test_late_ack_keeps_the_seat_for_a_redelivery(bench: Bench) -> None:
    bench.run("a", ttl=100, late=7200)
    assert bench.holder("a").until == NOON + 7200
    bench.finish("a")
    bench.run("b", ttl=9000, late=7200)
    assert bench.holder("b").until == NOON + 9000


def test_newest_arguments_reach_every_delivery(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.merge("b", b"2")
    assert bench.run("a", "one", lease=30, late=7200).args == b"2"
    bench.advance(30)
    assert bench.run("a", "two", late=7200).args == b"2"


def test_a_job_that_started_too_often_is_closed(bench: Bench) -> None:
    for number in range(3):
        assert bench.run("a", f"nonce{number}", lease=10, late=7200, max_starts=3).starts == number + 1
        bench.advance(10)
    assert bench.claim("a", "last", lease=10, late=7200, max_starts=3) == Exhausted(3)
    assert bench.holders() == ()
    assert bench.marker("a") == Marker(final=True)
    assert bench.claim("a", "another", max_starts=3) == Done()
    assert bench.events() == [("exhausted", "a")]
    assert isinstance(bench.acquire("b"), Acquired)


def test_an_exhausted_job_is_known_for_as_long_as_its_ended_attempts(bench: Bench) -> None:
    bench.run("a", max_starts=1)
    bench.finish("a", how=How.HANDOVER, marker_ttl=3600)
    assert bench.claim("a", "two", n=1, max_starts=1) == Exhausted(1)
    bench.advance(3599)
    assert bench.claim("a", "copy", n=0, max_starts=1) == Done()


def test_a_run_after_others_is_swept_of_what_is_dead(bench: Bench) -> None:
    bench.acquire("a")
    bench.wait("b", counts="")
    bench.advance(20)
    bench.run("b")
    assert bench.states() == {"b": "R"}


def test_a_debounced_message_that_is_early_sweeps_too(bench: Bench) -> None:
    bench.acquire("a", pending=1)
    bench.merge("b", b"1", wait=30, limit=2)
    bench.advance(2)
    assert isinstance(bench.claim("b"), Early)
    assert bench.states() == {"b": "P"}
