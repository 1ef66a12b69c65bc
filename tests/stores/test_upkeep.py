"""The verbs that look after records: reap, remove, inspect, list, counters, events, presence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Holder, Marker, Ref
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import (
    Acquired,
    Claimed,
    Doubt,
    Gone,
    Held,
    Lapse,
    Overdue,
    Reaped,
    Withdrawn,
)

from .bench import NOON, OTHER, REF, Bench


def test_the_reaper_reports_and_removes_what_is_dead(bench: Bench) -> None:
    bench.acquire("pending")
    bench.acquire("running", ref=OTHER)
    bench.run("running", ref=OTHER, lease=10)
    assert bench.reap() == Reaped((), ())
    bench.advance(20)
    assert sorted(bench.reap().lapses, key=lambda lapse: lapse.id) == [
        Lapse("abandoned", REF, "pending", "shop.recompute", "web@1"),
        Lapse("lost", OTHER, "running", "shop.recompute", "worker@1"),
    ]
    assert bench.record() is None
    assert sorted(bench.events()) == [("abandoned", "pending"), ("lost", "running")]
    assert bench.reap() == Reaped((), ())


@pytest.mark.parametrize("how", [None, How.KEEP])
def test_waiting_and_kept_holders_lapse(bench: Bench, how: How | None) -> None:
    bench.wait("a", ttl=100)
    if how:
        bench.run("a", ttl=100)
        bench.finish("a", how=how)
    bench.advance(99)
    assert bench.reap().lapses == ()
    bench.advance(1)
    assert [lapse.what for lapse in bench.reap().lapses] == ["lapsed"]


def test_the_reaper_leaves_the_living_of_a_record(bench: Bench) -> None:
    bench.acquire("a", limit=2)
    bench.wait("b", limit=2)
    bench.advance(20)
    assert [lapse.id for lapse in bench.reap().lapses] == ["a"]
    assert bench.states() == {"b": "W"}


def test_the_reaper_leaves_a_late_run_whose_redelivery_may_come(bench: Bench) -> None:
    bench.run("a", lease=10, late=100, ttl=1)
    bench.advance(50)
    assert bench.reap() == Reaped((), ())
    assert bench.states() == {"a": "R"}
    bench.advance(50)
    assert [lapse.what for lapse in bench.reap().lapses] == ["lost"]


def test_a_waiting_seat_without_news_is_doubted_at_doubling_ages(bench: Bench) -> None:
    bench.wait("a", ttl=3600)
    doubted = []
    for minute in range(1, 60):
        bench.advance(60)
        for doubt in bench.reap().doubtful:
            assert doubt == Doubt(REF, "shop.recompute", bench.holder("a"))
            doubted.append(minute)
    assert doubted == [5, 10, 20, 40]
    bench.advance(60)
    assert [lapse.what for lapse in bench.reap().lapses] == ["lapsed"]


def test_a_seat_behind_a_live_run_is_not_doubted(bench: Bench) -> None:
    """A worker may be holding its job before the shut gate (``Wait``), with a message that is acked."""
    bench.run("runs", lease=400)
    bench.wait("waits", counts="", ttl=3600)
    bench.advance(300)
    assert bench.reap().doubtful == ()
    bench.finish("runs")
    bench.advance(300)
    assert [doubt.holder.id for doubt in bench.reap().doubtful] == ["waits"]


def test_only_one_reaper_doubts(bench: Bench) -> None:
    bench.wait("a", ttl=3600)
    bench.advance(300)
    assert len(bench.reap().doubtful) == 1
    assert bench.reap().doubtful == ()


def test_a_late_run_that_vanished_is_doubted_from_the_end_of_its_lease(bench: Bench) -> None:
    bench.run("a", lease=30, late=3600)
    bench.advance(329)
    assert bench.reap().doubtful == ()
    bench.advance(1)
    assert [doubt.holder.id for doubt in bench.reap().doubtful] == ["a"]


def test_what_needs_no_message_is_never_doubted(bench: Bench) -> None:
    bench.acquire("pending", pending=3600)
    bench.run("running", ref=OTHER, lease=3600)
    bench.merge("intent", b"1", ref=Ref(REF.shard, "d" * 64), pending=3600)
    bench.advance(1800)
    assert bench.reap().doubtful == ()


def test_a_kept_seat_is_never_doubted(bench: Bench) -> None:
    bench.run("a", ttl=3600)
    bench.finish("a", how=How.KEEP)
    bench.advance(1800)
    assert bench.reap() == Reaped((), ())


def test_what_was_doubted_is_removed_as_it_was_shown(bench: Bench) -> None:
    bench.wait("a", ttl=3600)
    bench.advance(300)
    (doubt,) = bench.reap().doubtful
    assert bench.store.remove(doubt.ref, doubt.holder) == Withdrawn(0)
    bench.wait("b", ttl=3600)
    assert bench.store.remove(doubt.ref, doubt.holder) == Withdrawn(0), "the answer of a lost reply"
    assert bench.states() == {"b": "W"}


def test_an_overdue_intent_is_reported_to_one_reaper_and_stays(bench: Bench) -> None:
    bench.merge("a", b"1", pending=15)
    bench.advance(15)
    assert bench.reap() == Reaped((), (Overdue(REF, "a", 0, b"1", "shop.recompute"),))
    assert bench.reap() == Reaped((), ()), "another reaper comes at once"
    assert bench.holder("a").state == "W"
    bench.advance(15)
    assert len(bench.reap().overdue) == 1, "the first one died before its publish"


def test_a_reaper_whose_publish_failed_cannot_withdraw_the_job(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.advance(20)
    bench.reap()
    assert bench.withdraw("a") == Gone()
    assert bench.states() == {"a": "W"}


def test_a_waiting_intent_is_overdue_after_its_ttl(bench: Bench) -> None:
    bench.merge("a", b"1", ttl=100)
    bench.confirm("a")
    bench.advance(99)
    assert bench.reap().overdue == ()
    bench.advance(1)
    assert [overdue.id for overdue in bench.reap().overdue] == ["a"]


def test_an_intent_outlives_the_grace_time(bench: Bench) -> None:
    bench.merge("a", b"1")
    for _ in range(3):
        bench.advance(100_000)
        bench.acquire("somebody", ref=OTHER, pending=1)
    assert [overdue.id for overdue in bench.reap().overdue] == ["a"]


def test_an_overdue_intent_comes_as_its_next_attempt(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.run("a", n=4)
    bench.finish("a", how=How.HANDOVER, n=4, marker_ttl=20_000)
    bench.advance(10_000)
    assert [overdue.n for overdue in bench.reap().overdue] == [5]


def test_the_reaper_takes_no_more_than_it_was_told(bench: Bench) -> None:
    for number in range(5):
        bench.acquire(f"id{number}", ref=Ref(7, f"{number:064}"), pending=1 + number)
    bench.advance(100)
    assert [lapse.id for lapse in bench.reap(limit=2).lapses] == ["id0", "id1"], "the oldest first"
    assert [lapse.id for lapse in bench.reap(limit=9).lapses] == ["id2", "id3", "id4"]


def test_the_reaper_looks_at_one_shard(bench: Bench) -> None:
    bench.acquire("a", ref=Ref(3, "a" * 64))
    bench.advance(100)
    assert bench.reap() == Reaped((), ())
    answer = bench.store.reap(3)
    assert isinstance(answer, Reaped)
    assert [lapse.ref for lapse in answer.lapses] == [Ref(3, "a" * 64)]


# --- remove ---------------------------------------------------------------------------------------------


def test_a_holder_is_removed_as_it_was_shown(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b")
    shown = bench.holder("a")
    assert bench.store.remove(REF, shown) == Withdrawn(1)
    assert bench.holders() == ()
    assert bench.events() == [("removed", "a")]
    assert isinstance(bench.claim("a"), Claimed), "its message runs: a wrong proof costs no job"


@pytest.mark.parametrize("changed", ["state", "since", "until", "merged", "gone"])
def test_a_holder_that_has_changed_is_not_removed(bench: Bench, changed: str) -> None:
    bench.wait("a")
    shown = {
        "state": replace(bench.holder("a"), state="P"),
        "since": replace(bench.holder("a"), since=NOON - 1),
        "until": replace(bench.holder("a"), until=NOON),
        "merged": replace(bench.holder("a"), merged=1),
        "gone": Holder("nobody", "W"),
    }[changed]
    assert bench.store.remove(REF, shown) == Gone()
    assert bench.states() == {"a": "W"}


def test_a_holder_that_started_meanwhile_is_not_removed(bench: Bench) -> None:
    bench.wait("a")
    shown = bench.holder("a")
    bench.run("a")
    assert bench.store.remove(REF, shown) == Gone()


def test_removing_a_retry_keeps_its_marker(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a", how=How.HANDOVER)
    bench.store.remove(REF, bench.holder("a"))
    assert bench.marker("a") == Marker(n=0)


# --- inspect and list -----------------------------------------------------------------------------------


def test_an_unknown_fingerprint_has_no_record(bench: Bench) -> None:
    assert bench.record("a") is None


def test_a_record_shows_the_dead_too(bench: Bench) -> None:
    bench.acquire("a")
    bench.advance(100)
    assert bench.states() == {"a": "P"}
    assert bench.record().now == NOON + 100


def test_a_marker_is_shown_beside_a_record_and_without_one(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a")
    alone = bench.record("a")
    assert (alone.holders, alone.marker) == ((), Marker(final=True))
    bench.acquire("b")
    both = bench.record("a")
    assert (len(both.holders), both.marker) == (1, Marker(final=True))
    assert bench.record("b").marker is None


def test_locks_are_listed_by_rising_moment_of_attention(bench: Bench) -> None:
    for number, pending in enumerate([30, 10, 20]):
        bench.acquire(f"id{number}", ref=Ref(7, f"{number:064}"), pending=pending)
    found = bench.store.list_locks(7)
    assert [record.holders[0].id for record in found] == ["id1", "id2", "id0"]
    assert [record.attention for record in found] == [NOON + 10, NOON + 20, NOON + 30]
    assert [record.attention for record in bench.store.list_locks(7, after=NOON + 20)] == [
        NOON + 20,
        NOON + 30,
    ]
    assert len(bench.store.list_locks(7, limit=1)) == 1
    assert bench.store.list_locks(8) == []


def test_the_moment_of_attention_is_the_first_among_the_holders(bench: Bench) -> None:
    bench.wait("a", ttl=1000)
    bench.acquire("b", counts="", pending=15)
    (record,) = bench.store.list_locks(7)
    assert record.attention == NOON + 15
    bench.run("a", lease=5, ttl=1000, late=2000)
    (record,) = bench.store.list_locks(7)
    assert record.attention == NOON + 5, "a lapsed lease is news even if the seat stays"


# --- counters and events ----------------------------------------------------------------------------------


def test_answers_are_counted_by_lock_name(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b")
    bench.acquire("c", name="other", ref=Ref(3, "a" * 64))
    bench.run("a")
    bench.claim("a", "two")
    bench.finish("a")
    bench.claim("a", "two")
    assert bench.counted() == {"acquired": 1, "held": 1, "claimed": 1, "busy": 1, "released": 1, "done": 1}
    assert bench.counted("other") == {"acquired": 1}


def test_what_is_not_to_be_counted_is_not(bench: Bench) -> None:
    bench.acquire("a", counted=False)
    bench.acquire("b", counted=False)
    bench.run("a", counted=False)
    bench.finish("a", counted=False)
    assert bench.counted() == {}


def test_a_question_asked_again_is_counted_once(bench: Bench) -> None:
    for _ in range(2):
        bench.acquire("a")
    for _ in range(2):
        bench.run("a")
    for _ in range(2):
        bench.finish("a")
    assert bench.counted() == {"acquired": 1, "claimed": 1, "released": 1}


def test_every_answer_has_its_word(bench: Bench) -> None:
    bench.merge("a", b"1", wait=30)
    bench.merge("b", b"2", wait=30)
    bench.claim("a")
    bench.advance(30)
    bench.run("a", lease=10, late=100, max_starts=1)
    bench.finish("x", "x")
    bench.advance(10)
    bench.claim("a", "two", max_starts=1)
    bench.acquire("a")
    bench.run("k")
    bench.finish("k", how=How.KEEP)
    bench.wait("w", counts="")
    bench.acquire("o", counts="PW", on_waiting="over", received=True)
    bench.claim("w", "w")
    bench.run("o", "o")
    bench.finish("o", "o", how=How.HANDOVER)
    assert bench.counted() == {
        "acquired": 3, "merged": 1, "early": 1, "claimed": 3, "exhausted": 1, "outside": 1,
        "kept": 1, "superseded": 1, "handed_over": 1, "not_mine": 1,
    }  # fmt: skip


def test_events_are_read_in_order_from_where_one_was(bench: Bench) -> None:
    for number in range(3):
        bench.acquire(f"id{number}", pending=1)
        bench.advance(2)
    bench.reap()
    events = bench.store.events(7)
    assert [event.id for event in events] == ["id0", "id1", "id2"]
    first = events[0]
    assert (first.what, first.at, first.ref) == ("abandoned", NOON + 2, REF)
    assert (first.name, first.by, first.other) == ("shop.recompute", "web@1", "")
    assert bench.store.events(7, after=first.key) == events[1:]
    assert bench.store.events(7, limit=1) == events[:1]
    assert bench.store.events(7, after=events[-1].key) == []
    assert bench.store.events(3) == []


def test_events_carry_the_other_side(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.confirm("b")
    bench.finish("c", "paused")
    bench.acquire("d", counts="")
    bench.acquire("e", counts="P", limit=1)
    bench.withdraw("d")
    others = {event.what: event.other for event in bench.store.events(7)}
    assert others == {"superseded": "b", "lock_lost": "paused", "withdrawn": "1"}


def test_the_loss_of_a_retry_carries_the_attempt_that_had_ended_before(bench: Bench) -> None:
    bench.run("a")
    bench.run("b", ref=OTHER)
    for attempt in range(2):
        bench.finish("a", n=attempt, how=How.HANDOVER)
        bench.run("a", n=attempt + 1)
    bench.advance(50)
    bench.reap()
    assert {event.id: (event.what, event.other) for event in bench.store.events(7)} == {
        "a": ("lost", "1"),
        "b": ("lost", ""),
    }


# --- presence ---------------------------------------------------------------------------------------------


def test_a_worker_is_present_on_its_queues(bench: Bench) -> None:
    assert bench.store.announced("celery") is False
    assert bench.store.announce(["celery", "ß queue"], 60) is None
    assert bench.store.announced("celery") is True
    assert bench.store.announced("ß queue") is True
    assert bench.store.announced("other") is False
    assert bench.store.announce([], 60) is None


def test_a_refused_lock_stays_what_it_was_for_the_reaper(bench: Bench) -> None:
    bench.acquire("a", pending=15)
    bench.advance(10)
    bench.acquire("b")
    bench.advance(5)
    assert [lapse.id for lapse in bench.reap().lapses] == ["a"]


def test_other_records_are_not_touched(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("a", ref=OTHER)
    bench.run("a")
    bench.finish("a")
    answers = bench.store.acquire_many([Acquire(OTHER, "b"), Acquire(REF, "b")])
    assert [type(answer) for answer in answers] == [Held, Acquired]
