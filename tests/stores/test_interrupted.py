"""Deterministic races: somebody else's steps come between the reading and the writing of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction

from django_jobdedup.models import JobIntent
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import Acquired, Busy, Claimed, Held, Released, Renewed

from .bench import REF, DatabaseBench
from .interrupting import InterruptedBench


@pytest.fixture
def bench(database: DatabaseBench) -> Iterator[InterruptedBench]:
    """The store on each engine, to be interrupted."""
    bench = InterruptedBench(database.engine)
    yield bench
    bench.store.close()


def version(bench: InterruptedBench, id: str) -> int:
    """Look at how often a row was written."""
    return JobIntent.objects.using(bench.engine.alias).get(token=id).version


def test_a_seat_that_was_taken_passed_on_and_freed_meanwhile_is_noticed(bench: InterruptedBench) -> None:
    """The seat number is free again, but another waits on the next one."""

    def others() -> None:
        bench.wait("z", counts="PWR")
        bench.run("z")
        bench.wait("y", counts="PW")
        assert bench.finish("z") == Released()

    bench.interrupt(others)
    answer = bench.acquire("x", counts="PW")
    assert isinstance(answer, Held)
    assert answer.id == "y"


def test_the_same_of_one_that_was_deferred(bench: InterruptedBench) -> None:
    """It has a row already, so it is an update that must notice."""
    with transaction.atomic(bench.engine.alias):
        bench.store.defer([Acquire(REF, "x", call=b"x")])

    def others() -> None:
        bench.wait("z", counts="PWR")
        bench.run("z")
        bench.wait("y", counts="PW")
        bench.finish("z")

    bench.interrupt(others)
    assert isinstance(bench.acquire("x", counts="PW"), Held)


def test_a_seat_above_another_touches_the_one_below(bench: InterruptedBench) -> None:
    """Whoever frees the lower seat at that moment must notice, or be noticed."""
    bench.wait("a", counts="PWR")
    bench.run("a")
    before = version(bench, "a")
    bench.acquire("b", counts="PW")
    assert version(bench, "a") == before + 1


def test_the_one_that_is_come_over_is_touched(bench: InterruptedBench) -> None:
    bench.wait("a", counts="")
    before = version(bench, "a")
    bench.acquire("b", counts="PW", on_waiting="over")
    assert version(bench, "a") == before + 1


def test_one_that_starts_meanwhile_is_not_come_over(bench: InterruptedBench) -> None:
    bench.wait("a", counts="PW")
    bench.interrupt(lambda: bench.run("a"))
    assert isinstance(bench.acquire("b", counts="PW", on_waiting="over"), Acquired)
    assert bench.holder("b").over == ()


def test_of_two_that_start_at_once_one_runs(bench: InterruptedBench) -> None:
    bench.interrupt(lambda: bench.run("b", "two"))
    assert isinstance(bench.claim("a"), Busy)


def test_two_seats_take_two_that_start_at_once(bench: InterruptedBench) -> None:
    bench.interrupt(lambda: bench.run("b", "two", gate=2))
    assert isinstance(bench.claim("a", gate=2), Claimed)
    assert isinstance(bench.claim("c", gate=2), Busy)


def test_a_lease_that_is_renewed_while_it_is_swept_lives(bench: InterruptedBench) -> None:
    bench.run("a", lease=10)
    bench.advance(10)
    bench.interrupt(lambda: bench.renew("a"))
    assert isinstance(bench.acquire("b"), Held)
    assert bench.renew("a") == Renewed()
