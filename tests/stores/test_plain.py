"""What Redis decides on the short way of a plain acquire is what it decides on the long way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from redis import Redis

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import AcquireResult

from .bench import OTHER, REF, RedisBench
from .conftest import ALIAS
from .mutants import PLAIN_MUTANTS, Mutant

TAG = "{jd:07}:1:"
FORGOTTEN = Ref(7, "d" * 64)


@dataclass(frozen=True)
class Case:
    """A holder ``a`` in a state (``-`` is none), perhaps a marker of ``b``; time passes, somebody asks."""

    state: str
    age: float
    counts: str
    id: str
    marker: bool
    knobs: dict[str, Any] = field(hash=False)

    def prepare(self, bench: RedisBench) -> None:
        """Begin anew."""
        bench.clear()
        bench.acquire("c", ref=FORGOTTEN)
        if self.state != "-":
            bench.acquire("a")
        if self.state in "WRK":
            bench.confirm("a")
        if self.state in "RK":
            bench.run("a")
        if self.state == "K":
            bench.finish("a", how=How.KEEP)
        if self.marker:
            bench.run("b", gate=0)
            bench.finish("b")
        bench.advance(self.age)

    def request(self) -> Acquire:
        """Return what is asked."""
        return Acquire(
            REF, self.id, counts=self.counts, due_in=5.0, by="web@2", name="shop.recompute", **self.knobs
        )


CASES = [
    Case(state, age, counts, id, marker, knobs)
    for state, age, counts, (id, marker), knobs in product(
        "-PWRK",
        (0.0, 40.0, 172_800.0),
        ("PW", "PWRK"),
        (("a", False), ("b", False), ("b", True)),
        ({}, {"on_waiting": "over"}, {"limit": 2}, {"counted": False}),
    )
]


def short_and_long(bench: RedisBench, case: Case) -> tuple[Any, Any]:
    """Ask alone, then ask the same among others; give what came of it each time."""
    request, other = case.request(), Acquire(OTHER, "stranger", counted=False)
    case.prepare(bench)
    short = left(bench, lambda: bench.store.acquire(request))
    case.prepare(bench)
    long = left(bench, lambda: bench.store.acquire_many([request, other])[0])
    return short, long


def left(bench: RedisBench, ask: Callable[[], AcquireResult]) -> tuple[Any, ...]:
    """Ask, and give the answer with the very bytes that it left behind; lives in whole seconds."""
    answer = ask()
    lock = f"{TAG}lock:{REF.fingerprint}"
    index = dict(bench.client.zrange(f"{TAG}index", 0, -1, withscores=True))
    index.pop(OTHER.fingerprint.encode(), None)
    counters = bench.client.hgetall(f"{TAG}counters")
    return answer, bench.client.get(lock), -(-bench.client.pttl(lock) // 1000), index, counters


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_plain_acquire_leaves_the_same_bytes_as_one_among_others(
    redis_bench: RedisBench, case: Case
) -> None:
    short, long = short_and_long(redis_bench, case)
    assert short == long


@pytest.mark.parametrize("mutant", PLAIN_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_on_the_short_way_shows(client: Redis, mutant: Mutant) -> None:
    bench = RedisBench(client, ALIAS, mutant.edit)
    assert any(short != long for short, long in (short_and_long(bench, case) for case in CASES))
    assert bench.store.line.breaker.error == "", "a mistake of logic, not a script that does not run"
