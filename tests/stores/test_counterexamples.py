"""The table of counterexamples: the naive step, and what the store does instead."""

from __future__ import annotations

from django_jobdedup.outcomes import How
from django_jobdedup.stores.results import (
    Acquired,
    Busy,
    Claimed,
    Done,
    Gone,
    HandedOver,
    Held,
    Lost,
    Merged,
    NotMine,
    Outside,
    Owed,
    Released,
    Superseded,
)

from .bench import Bench


def two_copies(bench: Bench) -> None:
    """A first copy of a, paused for longer than its lease, and a second that took over."""
    bench.wait("a")
    bench.run("a", "first", lease=30, late=7200)
    bench.advance(30)
    bench.run("a", "second", lease=30, late=7200)


def test_a_paused_worker_does_not_free_the_next_holder(bench: Bench) -> None:
    bench.run("a", "first", lease=30)
    bench.advance(30)
    bench.wait("b")
    assert bench.finish("a", "first") == NotMine()
    assert bench.states() == {"b": "W"}


def test_a_paused_copy_does_not_free_the_second_copy_of_its_own_id(bench: Bench) -> None:
    two_copies(bench)
    assert bench.finish("a", "first") == NotMine()
    assert bench.holder("a").nonce == "second"


def test_two_copies_do_not_run_at_once(bench: Bench) -> None:
    bench.run("a", "first", late=7200)
    assert isinstance(bench.claim("a", "second", late=7200), Busy)


def test_a_paused_copy_does_not_keep_the_lease_of_the_second(bench: Bench) -> None:
    two_copies(bench)
    bench.advance(20)
    assert bench.renew("a", "first") == Lost()
    bench.advance(10)
    assert isinstance(bench.claim("a", "third"), Claimed)


def test_an_outsider_is_not_accepted_beside_a_retry(bench: Bench) -> None:
    bench.run("a")
    bench.again("a")
    assert bench.finish("a", how=How.HANDOVER) == HandedOver()
    assert isinstance(bench.acquire("b"), Held)


def test_a_worker_killed_after_its_retry_was_published_does_not_free_the_key(bench: Bench) -> None:
    bench.run("a", lease=30)
    bench.again("a")
    bench.advance(60)
    assert isinstance(bench.acquire("b"), Held)
    assert isinstance(bench.claim("a", "two", n=1), Claimed)


def test_an_old_retry_does_not_keep_a_freed_key_in_flight(bench: Bench) -> None:
    """Killed after its retry was published; the redelivery succeeds; then the retry comes."""
    bench.run("a", "one", lease=30, late=7200)
    bench.again("a")
    bench.advance(30)
    bench.run("a", "two", n=0, late=7200)
    assert bench.finish("a", "two", n=0) == Released()
    assert bench.claim("a", "three", n=1) == Done()
    assert isinstance(bench.acquire("b"), Acquired)


def test_a_paused_copys_end_does_not_silence_the_other_copys_retry(bench: Bench) -> None:
    two_copies(bench)
    bench.again("a")
    bench.finish("a", "second", How.HANDOVER)
    assert bench.finish("a", "first") == NotMine()
    assert isinstance(bench.claim("a", "third", n=1), Claimed)


def test_a_late_worker_does_not_create_a_holder_that_nobody_ends(bench: Bench) -> None:
    two_copies(bench)
    bench.finish("a", "second")
    assert bench.again("a") == Outside()
    assert bench.holders() == ()


def test_a_finished_job_does_not_run_again(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a")
    assert bench.claim("a", "copy") == Done()


def test_a_lost_reply_does_not_refuse_its_own_caller(bench: Bench) -> None:
    bench.acquire("a")
    assert isinstance(bench.acquire("a"), Acquired)


def test_a_late_confirm_does_not_plant_a_lock(bench: Bench) -> None:
    bench.acquire("a")
    bench.run("a")
    bench.finish("a")
    assert bench.confirm("a") == Gone()
    assert isinstance(bench.acquire("b"), Acquired)


def test_a_newcomer_that_dies_before_its_publish_replaces_nothing(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.advance(20)
    assert isinstance(bench.claim("a"), Claimed)


def test_a_newcomer_whose_publish_failed_replaces_nothing(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.withdraw("b")
    assert isinstance(bench.claim("a"), Claimed)


def test_of_three_newcomers_the_last_known_one_runs(bench: Bench) -> None:
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")
    bench.acquire("c", counts="PW", on_waiting="over")
    bench.confirm("c")
    assert bench.confirm("b") == Gone()
    assert bench.claim("b") == Superseded("c")
    assert bench.claim("a") == Superseded("c")
    assert isinstance(bench.claim("c"), Claimed)


def test_a_new_call_does_not_run_beside_a_coming_redelivery(bench: Bench) -> None:
    bench.run("a", lease=30, late=7200)
    bench.advance(30)
    assert isinstance(bench.acquire("b"), Held)
    assert isinstance(bench.claim("a", "redelivery", late=7200), Claimed)


def test_a_job_whose_lock_was_lost_is_not_dropped_as_a_duplicate(bench: Bench) -> None:
    bench.run("a", lease=30)
    bench.advance(30)
    bench.wait("b")
    assert bench.again("a") == Outside()


def test_a_call_during_the_run_gets_a_message_of_its_own(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.run("a")
    assert isinstance(bench.merge("b", b"2"), Acquired)
    assert isinstance(bench.claim("b", "two"), Busy)
    bench.finish("a")
    assert bench.run("b", "two").args == b"2"


def test_a_call_during_a_run_outlives_the_run_that_is_killed(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.run("a", lease=30)
    bench.merge("b", b"2")
    bench.advance(30)
    assert bench.run("b", "two").args == b"2"


def test_calls_merged_before_a_failed_publish_are_not_lost(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.merge("b", b"2")
    assert bench.withdraw("a") == Owed()
    assert bench.merge("c", b"3") == Merged("a", 0, True, call=b"3")


def test_a_redelivery_runs_with_the_newest_arguments(bench: Bench) -> None:
    bench.merge("a", b"1")
    bench.merge("b", b"2")
    bench.run("a", "one", lease=30, late=7200)
    bench.advance(30)
    assert bench.run("a", "two", late=7200).args == b"2"


def test_a_fence_does_not_start_again_after_a_release(bench: Bench) -> None:
    first = bench.run("a", "one")
    bench.finish("a", "one")
    assert bench.run("b", "two").fence > first.fence
