"""Many at once, while others come between: batches of calls, batches of relays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobdedup.models import JobIntent
from django_jobdedup.stores.database import bulk, outgoing
from django_jobdedup.stores.record import Record, Ref
from django_jobdedup.stores.requests import Acquire, Finish, Token
from django_jobdedup.stores.results import Acquired, Held, Merged, Outside, Unavailable

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


@pytest.mark.parametrize("on_waiting", ["keep", "merge"])
def test_many_calls_of_few_keys_are_few_statements(database: DatabaseBench, on_waiting: Any) -> None:
    """Decided over one reading: the first gets the seat, the others change what it holds."""
    keys = [Ref(7, f"{n:064}") for n in range(4)]
    knobs: Any = {"on_waiting": on_waiting, "counts": "PW", "counted": True, "name": "shop.recompute"}
    requests = [
        Acquire(keys[n % 4], f"id{n}", args=b"%d" % n if on_waiting == "merge" else None, **knobs)
        for n in range(80)
    ]
    with CaptureQueriesContext(connections[database.engine.alias]) as statements:
        answers = database.store.acquire_many(requests)
    assert [type(answer) for answer in answers] == [Acquired] * 4 + [
        Held if on_waiting == "keep" else Merged
    ] * 76
    assert [getattr(answer, "id", f"id{n}") for n, answer in enumerate(answers)] == [
        f"id{n % 4}" for n in range(80)
    ]
    assert len(statements) <= 6, [each["sql"][:80] for each in statements]
    rows = JobIntent.objects.using(database.engine.alias).order_by("token")
    expected = {"refused": 19, "merged": 0} if on_waiting == "keep" else {"refused": 0, "merged": 19}
    assert [{name: getattr(row, name) for name in expected} for row in rows] == [expected] * 4
    if on_waiting == "merge":
        assert [row.args and bytes(row.args) for row in rows] == [b"76", b"77", b"78", b"79"]
    told = database.counted()
    assert told == {"acquired": 4, "held" if on_waiting == "keep" else "merged": 76}


def test_refusals_by_a_seat_that_is_there_are_added_to_its_number(database: DatabaseBench) -> None:
    database.acquire("a")
    database.acquire("b")
    answers = database.store.acquire_many([Acquire(REF, f"id{n}") for n in range(5)])
    assert [type(answer) for answer in answers] == [Held] * 5
    assert database.holder("a").refused == 6


def test_each_newcomer_comes_over_the_one_before_it(database: DatabaseBench) -> None:
    """Seats of their own: one a round, in the order of the calls, whatever the other keys do."""
    keys = [Ref(7, f"{n:064}") for n in range(3)]
    knobs: Any = {"counts": "PW", "on_waiting": "over"}
    requests = [Acquire(keys[n % 3], f"id{n}", **knobs) for n in range(120)]
    answers = database.store.acquire_many(requests)
    assert [type(answer) for answer in answers] == [Acquired] * 120
    for number, ref in enumerate(keys):
        record = database.store.inspect(ref)
        assert isinstance(record, Record)
        assert [holder.id for holder in record.holders] == [f"id{n}" for n in range(number, 120, 3)]
        assert record.holders[-1].over == tuple(f"id{n}" for n in range(number, 117, 3))


def test_an_ended_id_among_equal_calls_is_left_out(database: DatabaseBench) -> None:
    database.run("a")
    database.finish("a")
    answers = database.store.acquire_many([Acquire(REF, "b"), Acquire(REF, "a"), Acquire(REF, "c")])
    assert [type(answer) for answer in answers] == [Acquired, Outside, Held]


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
