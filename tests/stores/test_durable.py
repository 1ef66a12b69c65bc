"""A durable store: rows that say "this must run", on each engine."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections, transaction

from django_jobdedup.models import JobIntent
from django_jobdedup.outcomes import How
from django_jobdedup.stores.database.store import DatabaseStore
from django_jobdedup.stores.durable import Fate, Found, Intent
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim
from django_jobdedup.stores.results import (
    Acquired,
    Claimed,
    Confirmed,
    Done,
    Gone,
    Held,
    Merged,
    Outside,
    Reaped,
    Superseded,
)

from .bench import OTHER, REF, DatabaseBench

CALL = b'{"args": [1]}'


def defer(bench: DatabaseBench, *ids: str, ref: Ref = REF, call: bytes = CALL) -> None:
    """Write intents in a transaction of their own."""
    with transaction.atomic(bench.engine.alias):
        bench.store.defer([Acquire(ref, id, name="shop.recompute", call=call) for id in ids])


def due(bench: DatabaseBench, **more: Any) -> list[str]:
    """Take what is due; the ids."""
    found = bench.store.due(**more)
    assert isinstance(found, list)
    return [intent.id for intent in found]


def state(bench: DatabaseBench, id: str, ref: Ref = REF) -> str:
    """Look at the state of a row."""
    fate = bench.store.fate(ref, id)
    assert isinstance(fate, Fate)
    return fate.state


def row(bench: DatabaseBench, id: str) -> JobIntent:
    """Look at a row."""
    return JobIntent.objects.using(bench.engine.alias).get(token=id)


# --- in a transaction -----------------------------------------------------------------------------------


def test_a_deferred_intent_holds_no_lock(database: DatabaseBench) -> None:
    defer(database, "a")
    assert database.holders() == ()
    assert isinstance(database.acquire("b"), Acquired)
    assert state(database, "a") == "pending"


def test_a_rollback_takes_the_intent_with_it(database: DatabaseBench) -> None:
    with transaction.atomic(database.engine.alias):
        database.store.defer([Acquire(REF, "a", call=CALL)])
        transaction.set_rollback(True, using=database.engine.alias)
    assert database.store.fate(REF, "a") is None


def test_two_transactions_with_one_key_do_not_wait_for_each_other(database: DatabaseBench) -> None:
    """Inside a transaction no unique key of the lock is taken."""
    with transaction.atomic(database.engine.alias):
        database.store.defer([Acquire(REF, "a", call=CALL), Acquire(REF, "b", call=CALL)])
    assert [row(database, id).wait_key for id in "ab"] == [None, None]


def test_a_deferred_intent_is_decided_later(database: DatabaseBench) -> None:
    defer(database, "a", "b")
    assert isinstance(database.acquire("a", call=CALL), Acquired)
    assert isinstance(database.acquire("b", call=CALL), Held)
    assert database.store.resolve(REF, "b", "superseded", by="a") is None
    assert database.store.resolve(REF, "b", "superseded", by="a") is None, "a lost reply"
    assert database.store.fate(REF, "b") == Fate("superseded", "a")
    assert database.confirm("a") == Confirmed()
    assert (state(database, "a"), due(database)) == ("published", [])


def test_a_thousand_intents_are_written_at_once(database: DatabaseBench) -> None:
    with transaction.atomic(database.engine.alias):
        database.store.defer([Acquire(Ref(1, f"{n:064}"), f"id{n}", call=b"x" * 2000) for n in range(1000)])
    assert JobIntent.objects.using(database.engine.alias).count() == 1000


def test_an_id_that_is_given_again_is_pending_again_with_its_new_call(database: DatabaseBench) -> None:
    defer(database, "a")
    database.acquire("a", call=CALL)
    database.run("a")
    database.finish("a")
    defer(database, "a", call=b"new")
    assert state(database, "a") == "pending"
    assert bytes(row(database, "a").call or b"") == b"new"


def test_an_intent_that_holds_a_seat_is_left_as_it_is(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.run("a")
    defer(database, "a", call=b"new")
    assert state(database, "a") == "running"


def test_the_transaction_is_known_by_a_mark(database: DatabaseBench) -> None:
    store, alias = database.store, database.engine.alias
    assert not store.in_transaction()
    with transaction.atomic(alias):
        assert store.in_transaction()
        outer = store.transaction()
        assert outer == store.transaction()
        with transaction.atomic(alias):
            inner = store.transaction()
            assert inner != outer
        with transaction.atomic(alias):
            assert store.transaction() not in (inner, outer)
    with transaction.atomic(alias):
        assert store.transaction() != outer


def test_what_comes_after_the_commit_comes_after_the_outermost(database: DatabaseBench) -> None:
    calls: list[str] = []
    with transaction.atomic(database.engine.alias):
        with transaction.atomic(database.engine.alias):
            database.store.after_commit(lambda: calls.append("kept"))
        with transaction.atomic(database.engine.alias):
            database.store.after_commit(lambda: calls.append("lost"))
            transaction.set_rollback(True, using=database.engine.alias)
        assert calls == []
    assert calls == ["kept"]


def test_transactions_by_hand_leave_it_to_the_relay(database: DatabaseBench) -> None:
    connection = connections[database.engine.alias]
    connection.ensure_connection()
    transaction.set_autocommit(False, using=database.engine.alias)
    try:
        assert database.store.in_transaction()
        database.store.after_commit(pytest.fail)
        database.store.defer([Acquire(REF, "a", call=CALL)])
        transaction.commit(using=database.engine.alias)
    finally:
        transaction.set_autocommit(True, using=database.engine.alias)
    database.advance(15)
    assert due(database) == ["a"]


# --- intents --------------------------------------------------------------------------------------------


def test_a_call_is_kept_and_never_lapses(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL, ttl=100)
    database.advance(1_000_000)
    assert isinstance(database.acquire("b"), Held)
    assert database.store.due() == [Intent(REF, "a", 0, "shop.recompute", CALL, decided=True)]


def test_the_reaper_leaves_intents_with_a_call_to_the_relay(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL, pending=10)
    database.acquire("b", ref=OTHER, pending=10)
    database.advance(20)
    reaped = database.reap(limit=1)
    assert ([lapse.id for lapse in reaped.lapses], reaped.overdue) == (["b"], ())
    assert database.reap() == Reaped((), ())


def test_an_intent_is_handed_to_one_relay_at_a_time(database: DatabaseBench) -> None:
    defer(database, "a")
    assert due(database) == [], "it is in the hands of who wrote it"
    database.advance(15)
    assert due(database) == ["a"]
    assert due(database) == []
    database.advance(15)
    assert due(database) == ["a"], "the first relay died"


def test_an_unconfirmed_intent_comes_again_and_a_confirmed_one_does_not(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.acquire("b", ref=OTHER, call=CALL)
    database.confirm("b", ref=OTHER)
    database.advance(15)
    assert due(database) == ["a"]
    assert state(database, "a") == "pending", "nobody knows of a message"
    assert database.confirm("a") == Confirmed()
    assert state(database, "a") == "published"
    database.advance(5400)
    assert sorted(due(database)) == ["a", "b"], "nothing was heard of them for their TTL"
    assert state(database, "a") == "pending", "in the hands of a relay"


def test_one_that_started_is_not_due(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.run("a", lease=1000)
    database.advance(500)
    assert due(database) == []


def test_a_relay_cannot_withdraw_what_it_was_handed(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.advance(15)
    due(database)
    assert database.withdraw("a") == Gone()
    assert database.states() == {"a": "W"}


def test_the_attempt_to_publish_counts_hand_overs(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.run("a", n=2)
    database.again("a", call=b"retry")
    database.finish("a", how=How.HANDOVER, n=2, marker_ttl=20_000)
    database.advance(10_000)
    told = Intent(REF, "a", 3, "shop.recompute", b"retry", decided=True, published=True, copies=1)
    assert database.store.due() == [told]


def test_intents_come_in_order_of_acceptance_and_no_more_than_asked_for(database: DatabaseBench) -> None:
    for number in range(5):
        defer(database, f"id{number}", ref=Ref(7, f"{9 - number:064}"))
    database.advance(15)
    assert due(database, limit=2) == ["id0", "id1"]
    assert due(database, limit=9) == ["id2", "id3", "id4"]


def test_no_later_intent_of_a_key_overtakes_an_earlier_one(database: DatabaseBench) -> None:
    defer(database, "a")
    database.advance(15)
    defer(database, "b")
    defer(database, "c", ref=OTHER)
    assert due(database) == ["a"]
    database.advance(14)
    assert due(database) == []
    database.store.missed(REF, "a", "its queue is gone", 100)
    database.advance(2)
    assert due(database) == ["c"], "b waits for a, and c for nobody"
    database.store.resolve(REF, "a", "dead", reason="its queue is gone")
    assert due(database) == ["b"]


def test_the_earlier_of_a_key_comes_first_though_it_is_due_later(database: DatabaseBench) -> None:
    defer(database, "a")
    defer(database, "b")
    database.advance(20)
    database.store.missed(REF, "a", "later", 0)
    assert due(database, limit=1) == ["a"]
    assert due(database, limit=1) == [], "it is in another's hands"
    database.advance(15)
    assert due(database) == ["a"], "b was due before it, and waits all the same"
    database.store.resolve(REF, "a", "published")
    assert due(database) == ["b"]


def test_a_miss_is_counted_and_puts_the_next_try_off(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.advance(15)
    due(database)
    assert database.store.missed(REF, "a", "no such exchange", 60) == 1
    assert database.store.missed(REF, "a", "no such exchange", 60) == 2
    assert database.store.fate(REF, "a") == Fate("pending", reason="no such exchange")
    database.advance(59)
    assert due(database) == []
    database.advance(1)
    (intent,) = database.store.due()  # type: ignore[misc]
    assert (intent.id, intent.attempts) == ("a", 2)
    assert database.store.missed(REF, "nobody", "?", 1) == Gone()


def test_a_dead_intent_frees_its_key(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    assert database.store.resolve(REF, "a", "dead", reason="cannot be encoded") is None
    assert database.store.fate(REF, "a") == Fate("dead", reason="cannot be encoded")
    assert isinstance(database.acquire("b"), Acquired)


@pytest.mark.parametrize("what", ["superseded", "published"])
def test_only_an_undecided_intent_is_settled(database: DatabaseBench, what: Any) -> None:
    database.acquire("a", call=CALL)
    assert database.store.resolve(REF, "a", what) == Gone()
    database.run("a")
    assert database.store.resolve(REF, "a", "dead") == Gone(), "it has started"
    assert database.store.resolve(REF, "nobody", what) == Gone()


def test_one_published_without_a_lock_runs_and_ends(database: DatabaseBench) -> None:
    defer(database, "a")
    assert database.store.resolve(REF, "a", "published") is None
    database.advance(1000)
    assert due(database) == []
    assert isinstance(database.claim("a"), Claimed)
    database.finish("a", reason="success")
    assert state(database, "a") == "done"


def test_merged_calls_come_with_the_claim(database: DatabaseBench) -> None:
    database.merge("a", b"1", call=CALL)
    assert database.merge("b", b"2", call=b"other") == Merged("a", 0, publish=False)
    database.advance(20)
    (intent,) = database.store.due()  # type: ignore[misc]
    assert intent.call == CALL
    assert database.run("a").args == b"2"


def test_a_dead_one_keeps_the_newest_call_of_those_that_joined_it(database: DatabaseBench) -> None:
    database.merge("a", b"1", call=CALL)
    database.merge("b", b"2", call=b"other")
    database.store.resolve(REF, "a", "dead", reason="rejected")
    database.withdraw("a", waiting=True)
    assert bytes(row(database, "a").call or b"") == b"2"


def test_so_does_one_that_started_too_often(database: DatabaseBench) -> None:
    database.merge("a", b"1", call=CALL)
    database.merge("b", b"2", call=b"other")
    database.confirm("a")
    database.run("a", late=100, lease=10, max_starts=1)
    database.advance(10)
    database.claim("a", "two", late=100, max_starts=1)
    database.store.resolve(REF, "a", "dead", reason="started once")
    assert (state(database, "a"), bytes(row(database, "a").call or b"")) == ("dead", b"2")


def test_a_retry_stores_its_new_call(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.acquire("a", call=b"other")
    assert bytes(row(database, "a").call or b"") == CALL, "asked again for a lost reply"
    database.run("a")
    database.again("a", call=b"retry")
    assert bytes(row(database, "a").call or b"") == b"retry"


def test_a_retry_that_could_not_be_published_is_due_at_once(database: DatabaseBench) -> None:
    """With its new call, also where the transaction that stored it before was rolled back."""
    database.wait("a", call=CALL)
    database.run("a")
    database.again("a", call=b"retry", due_in=100.0)
    database.finish("a", how=How.HANDOVER, reason="retry", unsent=b"retry, newest")
    database.finish("a", how=How.HANDOVER, reason="retry", unsent=b"retry, newest")
    assert (database.states(), state(database, "a")) == ({"a": "W"}, "pending")
    assert isinstance(database.acquire("b", call=CALL), Held), "its lock is not free"
    (intent,) = database.store.due()  # type: ignore[union-attr]
    assert (intent.id, intent.call, intent.n, intent.decided) == ("a", b"retry, newest", 1, True)
    database.confirm("a")
    assert state(database, "a") == "published"
    assert isinstance(database.claim("a", "two", n=1), Claimed)


def test_a_retry_that_was_published_is_not_due(database: DatabaseBench) -> None:
    database.wait("a", call=CALL)
    database.run("a")
    database.again("a", call=b"retry")
    database.finish("a", how=How.HANDOVER, reason="retry")
    assert state(database, "a") == "published"
    assert due(database) == []


def test_a_call_that_ended_is_outside(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.run("a")
    database.finish("a")
    assert database.acquire("a", call=CALL) == Outside()


def test_two_tasks_without_a_key_of_their_own_never_refuse(database: DatabaseBench) -> None:
    for id in "ab":
        assert isinstance(database.acquire(id, counts="", call=CALL), Acquired)
    assert isinstance(database.claim("a"), Claimed)
    database.advance(15)
    assert due(database) == ["b"]


# --- what became of it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "said"),
    [("success", "done"), ("ignore", "done"), ("failure", "failed"), ("timeout", "failed"), ("lost", "lost")],
)
@pytest.mark.parametrize("how", [How.RELEASE, How.KEEP])
def test_the_row_says_how_it_ended(database: DatabaseBench, reason: str, said: str, how: How) -> None:
    database.acquire("a", call=CALL)
    assert state(database, "a") == "pending"
    database.run("a")
    assert state(database, "a") == "running"
    database.finish("a", how=how, reason=reason)
    assert state(database, "a") == said
    database.advance(10_000)
    database.reap()
    assert state(database, "a") == said, "its lock lapsed, it had ended"


def test_a_lost_run_is_lost(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.run("a", lease=10)
    database.advance(10)
    database.acquire("b", call=CALL)
    assert state(database, "a") == "lost"


def test_one_that_was_withdrawn_says_why(database: DatabaseBench) -> None:
    database.wait("a", call=CALL)
    database.withdraw("a", waiting=True, reason="revoked")
    assert database.store.fate(REF, "a") == Fate("failed", reason="revoked")


@pytest.mark.parametrize(
    ("reason", "said"), [("success", "done"), ("ignore", "done"), ("failure", "failed"), ("lost", "lost")]
)
@pytest.mark.parametrize("refused", [0, 1])
def test_one_that_ran_without_a_claim_says_how_it_ended(
    database: DatabaseBench, reason: str, said: str, refused: int
) -> None:
    """Its store did not answer at the start, so its waiting seat is given back at the end."""
    database.wait("a", call=CALL)
    if refused:
        database.acquire("b", call=CALL)
    database.withdraw("a", waiting=True, reason=reason)
    assert state(database, "a") == said


def test_one_that_was_skipped_says_by_whom_and_never_starts(database: DatabaseBench) -> None:
    database.wait("a", call=CALL)
    database.withdraw("a", waiting=True, marker_ttl=100, by="b")
    assert database.store.fate(REF, "a") == Fate("superseded", "b")
    assert row(database, "a").mark_by == "b"
    assert database.claim("a") == Superseded("b"), "a late copy"


def test_one_that_refused_others_and_was_skipped_says_by_whom(database: DatabaseBench) -> None:
    database.wait("a", call=CALL)
    database.acquire("c", call=CALL)
    database.withdraw("a", waiting=True, by="b")
    assert database.store.fate(REF, "a") == Fate("superseded", "b")


def test_a_dead_one_stays_dead_when_its_id_is_closed(database: DatabaseBench) -> None:
    database.wait("a", call=CALL)
    database.store.resolve(REF, "a", "dead", reason="rejected: b runs")
    ended = row(database, "a").ended_at
    database.advance(5)
    database.withdraw("a", waiting=True, marker_ttl=100)
    assert database.store.fate(REF, "a") == Fate("dead", reason="rejected: b runs")
    assert row(database, "a").ended_at == ended
    database.advance(99)
    assert database.claim("a") == Done(), "a late copy"


def test_a_marker_is_not_made_shorter_by_the_word_dead(database: DatabaseBench) -> None:
    database.wait("a", call=CALL)
    database.run("a", late=1000, lease=10, max_starts=1)
    database.advance(10)
    database.claim("a", "two", late=1000, max_starts=1)
    assert database.store.resolve(REF, "a", "dead", reason="started once") is None
    database.advance(900)
    assert database.claim("a", "three", late=1000, max_starts=1) == Done()


def test_one_that_was_superseded_says_by_whom(database: DatabaseBench) -> None:
    database.wait("a", call=CALL)
    database.acquire("b", counts="PW", on_waiting="over", call=CALL)
    database.confirm("b")
    assert database.store.fate(REF, "a") == Fate("superseded", "b", "a newer call took its place")


def test_one_that_started_too_often_is_dead(database: DatabaseBench) -> None:
    database.wait("a", call=CALL)
    database.run("a", late=100, lease=10, max_starts=1)
    database.advance(10)
    database.claim("a", "two", late=100, max_starts=1)
    assert state(database, "a") == "dead"


def test_a_job_is_found_by_its_task_id(database: DatabaseBench) -> None:
    assert database.store.seek("a") is None
    database.acquire("a", call=CALL)
    database.acquire("a", ref=OTHER, call=CALL)
    assert database.store.seek("a") == Found(OTHER, "a", Fate("pending"))


def test_a_long_run_of_ended_rows_says_when_they_ended(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL)
    database.run("a")
    database.finish("a", marker_ttl=60)
    ended = JobIntent.objects.using(database.engine.alias).ended_before
    now = round(database.now * 1000)
    assert ended(now + 60_000).count() == 0, "its marker is needed"
    assert ended(now + 60_001).count() == 1
    database.store.claim(Claim(REF, "b", 0, "one"))
    assert ended(now + 60_001).count() == 1


def test_a_confirmation_tells_of_one_message_only(database: DatabaseBench) -> None:
    """Two of one lock are in the hands of a relay; whoever confirms one of them says nothing of the other."""
    for id in "ab":
        database.acquire(id, counts="", call=CALL)
    database.advance(15)
    assert due(database) == ["a", "b"]
    database.confirm("a")
    database.confirm("a")
    assert (state(database, "a"), state(database, "b")) == ("published", "pending")


def test_the_time_of_one_that_left_late_counts_from_its_leaving(database: DatabaseBench) -> None:
    database.acquire("a", call=CALL, ttl=100)
    database.advance(5000)
    due(database)
    database.confirm("a")
    database.advance(99)
    assert due(database) == []
    database.advance(1)
    assert due(database) == ["a"]


@pytest.mark.parametrize("end", ["finish", "revoke"])
def test_an_ended_id_does_not_run_again_as_long_as_its_row_stays(
    database: DatabaseBench, settings: Any, end: str
) -> None:
    """A relay may have published a second message of it, which waits behind the whole queue."""
    settings.JOBDEDUP_RETENTION = 5000
    database.store = DatabaseStore("default", database.engine.alias, clock=database._clock)
    database.acquire("a", call=CALL)
    database.confirm("a")
    if end == "finish":
        database.run("a")
        database.finish("a", marker_ttl=60)
    else:
        database.withdraw("a", waiting=True, marker_ttl=60)
    database.advance(4999)
    assert database.claim("a", "two") == Done()
    assert database.acquire("a") == Outside()
    database.advance(1)
    assert isinstance(database.claim("a", "two"), Claimed)
