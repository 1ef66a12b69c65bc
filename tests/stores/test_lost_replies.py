"""A verb whose reply was lost is asked again: the same answer, the same record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobdedup.outcomes import How
from django_jobdedup.stores.requests import Token
from django_jobdedup.stores.results import Exhausted, Gone, Held, Released, Withdrawn

from .bench import REF, Bench

Step = Callable[[Bench], Any]


def nothing(bench: Bench) -> None:
    """Begin with an empty store."""


def waiting(bench: Bench) -> None:
    """Begin with a waiting."""
    bench.wait("a")


def running(bench: Bench) -> None:
    """Begin with a running, and one refused call."""
    bench.run("a", late=7200)
    bench.acquire("b")


def handed_over(bench: Bench) -> None:
    """Begin with a waiting for its second attempt, and one refused call."""
    bench.run("a")
    bench.finish("a", how=How.HANDOVER)
    bench.acquire("b")


def withdrawn_before(bench: Bench) -> None:
    """Begin with a waiting once more, after a publish that failed and two refused calls."""
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")
    bench.withdraw("a")
    bench.wait("a")


def retried_without_a_lock(bench: Bench) -> None:
    """Begin with a reserved once more, though an attempt of it has ended, and one refused call."""
    bench.finish("a", "lost", How.HANDOVER)
    bench.again("a")
    bench.acquire("b")


def merged(bench: Bench) -> None:
    """Begin with a waiting on newer arguments."""
    bench.merge("a", b"1", wait=30)
    bench.merge("b", b"2", wait=30)


def overdue(bench: Bench) -> None:
    """Begin with an overdue intent."""
    bench.merge("a", b"1")
    bench.advance(20)


def tired(bench: Bench) -> None:
    """Begin with a job that started once and was killed."""
    bench.run("a", "dead", lease=1, late=7200)
    bench.advance(2)


def replaced(bench: Bench) -> None:
    """Begin with b coming over a."""
    bench.wait("a")
    bench.acquire("b", counts="PW", on_waiting="over")


def ready(bench: Bench) -> None:
    """Begin with newest arguments whose time has come."""
    merged(bench)
    bench.advance(30)


STEPS: dict[str, tuple[Step, Step]] = {
    "acquire": (nothing, lambda b: b.acquire("a", args=b"x")),
    "acquire, received": (nothing, lambda b: b.acquire("a", received=True)),
    "acquire beside": (running, lambda b: b.acquire("c", counts="PW")),
    "acquire over": (waiting, lambda b: b.acquire("b", counts="PW", on_waiting="over")),
    "acquire, retry": (running, lambda b: b.again("a", due_in=60)),
    "acquire outside": (waiting, lambda b: b.again("b")),
    "merge": (merged, lambda b: b.merge("c", b"3", wait=30)),
    "merge, start moved forward": (merged, lambda b: b.merge("c", b"3", wait=5)),
    "merge into an overdue one": (overdue, lambda b: b.merge("c", b"3")),
    "confirm": (nothing, lambda b: (b.acquire("a"), b.confirm("a"))),
    "confirm over": (replaced, lambda b: b.confirm("b")),
    "confirm nobody": (nothing, lambda b: b.confirm("a")),
    "withdraw": (lambda b: (b.acquire("a"), b.acquire("b")), lambda b: b.withdraw("a")),
    "withdraw owed": (merged, lambda b: b.withdraw("a")),
    "withdraw nobody": (nothing, lambda b: b.withdraw("a")),
    "withdraw a revoked one": (
        lambda b: (b.wait("a"), b.acquire("b")),
        lambda b: b.withdraw("a", waiting=True),
    ),
    "claim": (waiting, lambda b: b.claim("a")),
    "claim with arguments": (ready, lambda b: b.claim("a")),
    "claim late": (ready, lambda b: b.claim("a", late=7200)),
    "claim without a holder": (nothing, lambda b: b.claim("a")),
    "claim, the newcomer first": (replaced, lambda b: b.claim("b")),
    "claim superseded": (lambda b: (replaced(b), b.confirm("b")), lambda b: b.claim("a")),
    "claim early": (merged, lambda b: b.claim("a")),
    "claim busy": (running, lambda b: b.claim("a", "two")),
    "claim exhausted": (tired, lambda b: b.claim("a", "two", max_starts=1)),
    "renew": (running, lambda b: b.renew("a")),
    "renew lost": (running, lambda b: b.renew("a", "two")),
    "release": (running, lambda b: b.finish("a")),
    "keep": (running, lambda b: b.finish("a", how=How.KEEP)),
    "hand over": (running, lambda b: b.finish("a", how=How.HANDOVER)),
    "requeue": (running, lambda b: b.finish("a", how=How.REQUEUE)),
    "not mine": (running, lambda b: b.finish("a", "two")),
    "withdraw a retry": (retried_without_a_lock, lambda b: b.withdraw("a")),
    "remove": (waiting, lambda b: b.store.remove(REF, SHOWN[id(b)])),
    "remove what was handed over": (handed_over, lambda b: b.store.remove(REF, SHOWN[id(b)])),
    "remove after a withdrawal": (withdrawn_before, lambda b: b.store.remove(REF, SHOWN[id(b)])),
}
SHOWN: dict[int, Any] = {}


@pytest.mark.parametrize("name", STEPS)
def test_a_repeated_verb_gives_the_same_answer_and_leaves_the_same_record(bench: Bench, name: str) -> None:
    begin, step = STEPS[name]
    begin(bench)
    if name.startswith("remove"):
        SHOWN[id(bench)] = bench.holder("a")
    first = step(bench)
    after_one = (bench.holders(), bench.marker("a"), bench.marker("b"))
    assert step(bench) == first
    assert (bench.holders(), bench.marker("a"), bench.marker("b")) == after_one
    bench.advance(2)
    assert type(step(bench)) is type(first), "also when it took a while to ask again"


def test_a_repeated_refusal_names_the_same_holder(bench: Bench) -> None:
    bench.wait("a")
    assert bench.acquire("b") == bench.acquire("b")
    assert isinstance(bench.acquire("b"), Held)


@pytest.mark.parametrize("how", [How.RELEASE, How.KEEP, How.HANDOVER, How.REQUEUE])
def test_an_ending_seen_by_two_processes_is_one_ending(bench: Bench, how: How) -> None:
    """The pool's child tells it, then the main process does, perhaps in another word."""
    bench.run("a")
    first = bench.finish("a", how=how)
    before = bench.holders()
    for other in How:
        assert bench.finish("a", how=other) == first
    assert bench.holders() == before
    assert bench.events() == []


def test_a_requeue_told_again_as_a_release_does_not_close_the_id(bench: Bench) -> None:
    bench.run("a")
    bench.finish("a", how=How.REQUEUE)
    bench.finish("a", how=How.RELEASE)
    assert bench.marker("a") is None
    bench.run("a", "two")


def test_an_answer_that_is_kept_is_not_given_to_somebody_else(bench: Bench) -> None:
    tired(bench)
    assert bench.claim("a", "two", max_starts=1) == Exhausted(1)
    assert bench.claim("a", "three", max_starts=1) != Exhausted(1)
    bench.run("b", "mine")
    assert bench.finish("b", "mine") == Released()
    assert bench.finish("b", "stranger") != Released()


def test_the_kept_answer_of_a_withdrawal_is_forgotten_with_a_new_seat(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")
    assert bench.withdraw("a") == Withdrawn(1)
    bench.wait("a")
    assert bench.withdraw("a") == Gone()


def test_a_repeated_renewal_of_several_is_the_same(bench: Bench) -> None:
    running(bench)
    tokens = [Token(REF, "a", "one"), Token(REF, "x", "x")]
    assert bench.store.renew(tokens) == bench.store.renew(tokens)
