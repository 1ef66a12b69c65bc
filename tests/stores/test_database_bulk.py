"""Many at once, while others come between: batches of calls, batches of relays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from django_jobdedup.stores.database import bulk, outgoing
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Finish, Token
from django_jobdedup.stores.results import Acquired, Held, Unavailable

from .bench import REF, DatabaseBench

CALL = b"x"


def asked(number: int, **knobs: Any) -> list[Acquire]:
    """Make up calls of different keys."""
    return [Acquire(Ref(7, f"{n:064}"), f"id{n}", call=CALL, **knobs) for n in range(number)]


def between(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, call: Callable[[], object], times: int
) -> None:
    """Let ``call`` come behind the first ``times`` calls of a function."""
    function, left = getattr(module, name), iter(range(times))

    def interrupted(*args: Any, **named: Any) -> Any:
        answer = function(*args, **named)
        if next(left, None) is not None:
            call()
        return answer

    monkeypatch.setattr(module, name, interrupted)


@pytest.fixture
def numbers() -> Iterator[int]:
    """Numbers that go on."""
    return iter(range(100))


def test_who_comes_between_wins_his_key_and_no_other(
    database: DatabaseBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Acquire(Ref(7, f"{1:064}"), "other")
    between(monkeypatch, bulk, "look_many", lambda: database.store.acquire(others), 1)
    answers = database.store.acquire_many(asked(3))
    assert [type(answer) for answer in answers] == [Acquired, Held, Acquired]
    assert isinstance(answers[1], Held)
    assert answers[1].id == "other"


def test_a_waiting_one_beside_a_running_one_is_noticed(
    database: DatabaseBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seat is another than the one that the batch takes, so no unique column tells."""
    key = Ref(7, f"{1:064}")

    def others() -> None:
        database.store.acquire(Acquire(key, "z"))
        database.claim("z", ref=key)
        database.store.acquire(Acquire(key, "y", counts="PW"))
        database.store.finish(Finish(Token(key, "z", "one"), 0))

    between(monkeypatch, bulk, "look_many", others, 1)
    answers = database.store.acquire_many(asked(3, counts="PW"))
    assert [type(answer) for answer in answers] == [Acquired, Held, Acquired]


def test_a_batch_that_always_meets_others_is_done_one_by_one(
    database: DatabaseBench, monkeypatch: pytest.MonkeyPatch, numbers: Iterator[int]
) -> None:
    def other() -> None:
        database.store.acquire(Acquire(Ref(7, f"{1:064}"), f"other{next(numbers)}", counts="", limit=99))

    between(monkeypatch, bulk, "look_many", other, bulk.TRIES)
    answers = database.store.acquire_many(asked(3))
    assert [type(answer) for answer in answers] == [Acquired, Held, Acquired]


def test_equal_keys_in_one_batch_are_decided_in_their_order(database: DatabaseBench) -> None:
    requests = [Acquire(REF, "a"), *asked(2), Acquire(REF, "b"), Acquire(REF, "c", limit=2)]
    answers = database.store.acquire_many(requests)
    assert [type(answer) for answer in answers] == [Acquired, Acquired, Acquired, Held, Acquired]


def test_large_calls_are_spread_over_batches(database: DatabaseBench) -> None:
    requests = [Acquire(Ref(7, f"{n:064}"), f"id{n}", call=b"x" * 600_000) for n in range(4)]
    assert all(isinstance(answer, Acquired) for answer in database.store.acquire_many(requests))
    with transaction.atomic(database.engine.alias):
        database.store.defer([Acquire(r.ref, r.id + "b", call=r.call) for r in requests])
    assert len(list(database.store.due() or [])) == 0


def test_a_batch_while_the_breaker_is_open_says_so_for_each(database: DatabaseBench) -> None:
    database.store.line.breaker.failed("down")
    assert database.store.acquire_many(asked(3)) == [Unavailable("down")] * 3
    database.store.line.breaker.worked()


def test_a_relay_gives_a_later_one_back_when_another_has_the_earlier(
    database: DatabaseBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in "ab":
        with transaction.atomic(database.engine.alias):
            database.store.defer([Acquire(REF, id, call=CALL)])
    database.advance(20)
    taken: list[Any] = []
    between(monkeypatch, outgoing, "_candidates", lambda: taken.append(database.store.due(1)), 1)
    assert database.store.due() == [], "b waits for a, which the other relay has"
    assert [intent.id for intent in taken[0]] == ["a"]
    database.store.resolve(REF, "a", "published")
    found = database.store.due()
    assert isinstance(found, list)
    assert [intent.id for intent in found] == ["b"], "given back at once"
