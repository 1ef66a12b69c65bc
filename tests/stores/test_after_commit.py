"""What a commit has made visible: taken once, by its sender or by a relay, and settled together."""

from __future__ import annotations

from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobdedup.stores.durable import Fate
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import Acquired, Confirmed, Superseded

from .bench import OTHER, REF, DatabaseBench

PENDING = 15
"""``JOBDEDUP_CONFIRM_WITHIN``."""


def defer(bench: DatabaseBench, *ids: str, ref: Ref = REF) -> None:
    """Write intents in a transaction of their own."""
    with transaction.atomic(bench.engine.alias):
        bench.store.defer([Acquire(ref, id, name="shop.recompute", call=b"x") for id in ids])


def due(bench: DatabaseBench) -> list[str]:
    """Take what is due, as a relay does; the ids."""
    found = bench.store.due()
    assert isinstance(found, list)
    return [intent.id for intent in found]


def test_what_its_sender_has_taken_no_relay_gets_for_a_while(database: DatabaseBench) -> None:
    defer(database, "a", "b")
    database.advance(PENDING - 1)
    assert database.store.take([(REF, "a"), (REF, "b")]) == [True, True]
    database.advance(PENDING - 1)
    assert due(database) == []
    database.advance(2)
    assert due(database) == ["a", "b"], "its sender has died"


def test_what_a_relay_was_handed_its_sender_does_not_get(database: DatabaseBench) -> None:
    """The transaction was longer than JOBDEDUP_CONFIRM_WITHIN: the relay was faster."""
    defer(database, "a")
    database.advance(PENDING + 1)
    defer(database, "b")
    assert due(database) == ["a"]
    assert database.store.take([(REF, "a"), (REF, "b")]) == [False, True]


def test_nobody_takes_what_is_decided(database: DatabaseBench) -> None:
    defer(database, "a", "b", "c", "d")
    assert isinstance(database.acquire("a", call=b"x"), Acquired)
    assert database.store.supersede([(REF, "b", "a")]) is None
    assert database.store.resolve(REF, "c", "dead", reason="broken") is None
    assert database.store.take([(REF, id) for id in "abcdz"]) == [False, False, False, True, False]


def test_an_intent_that_is_written_again_can_be_taken_again(database: DatabaseBench) -> None:
    defer(database, "a")
    assert database.store.take([(REF, "a")]) == [True]
    assert database.store.supersede([(REF, "a", "z")]) is None
    defer(database, "a")
    assert database.store.take([(REF, "a")]) == [True]
    assert isinstance(database.acquire("a", call=b"x"), Acquired)
    assert database.confirm("a") == Confirmed()
    database.run("a")


def test_many_are_refused_in_one_statement_each_by_its_holder(database: DatabaseBench) -> None:
    defer(database, "a", "b", "c")
    defer(database, "a", ref=OTHER)
    refused = [(REF, "a", "x"), (OTHER, "a", "y"), (REF, "b", "z")]
    for _ in range(2):  # the second time as after a lost reply
        with CaptureQueriesContext(connections[database.engine.alias]) as statements:
            assert database.store.supersede(refused) is None
        assert len(statements) == 1
    assert database.store.fate(REF, "a") == Fate("superseded", "x")
    assert database.store.fate(OTHER, "a") == Fate("superseded", "y")
    assert database.store.fate(REF, "b") == Fate("superseded", "z")
    assert database.store.fate(REF, "c") == Fate("pending")
    database.advance(PENDING + 1)
    assert due(database) == ["c"]
    assert database.claim("b") == Superseded("z")


def test_a_job_that_has_its_seat_cannot_be_refused(database: DatabaseBench) -> None:
    defer(database, "a")
    database.acquire("a", call=b"x")
    assert database.store.supersede([(REF, "a", "z")]) is None
    assert database.store.fate(REF, "a") == Fate("pending")
    assert database.states() == {"a": "P"}
