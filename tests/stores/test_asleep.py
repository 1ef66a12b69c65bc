"""The line of a lock: who was put off is named by a release, in order, one a release, twice at no time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.db import connections

from django_jobdedup.models import JobIntent
from django_jobdedup.outcomes import How
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.inprocess.sleeping import MOST
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Sleep, Token
from django_jobdedup.stores.results import (
    Asleep,
    Busy,
    Claimed,
    Done,
    HandedOver,
    Kept,
    NotMine,
    Open,
    Overdue,
    Reaped,
    Released,
    Unavailable,
    Withdrawn,
)

from .bench import REF, Bench, DatabaseBench, MemoryBench, RedisBench


def sleeper(id: str, n: int = 0) -> Overdue:
    return Overdue(REF, id, n, id.encode(), "shop.recompute")


def named(id: str, n: int = 0) -> Released:
    return Released(sleeper(id, n))


def put_off(bench: Bench, *ids: str, **more: Any) -> None:
    """Let jobs meet the shut gate, one a second, and lie down."""
    for id in ids:
        bench.wait(id, counts="", call=id.encode())
        assert isinstance(bench.claim(id, f"{id}-first", gate=more.get("gate", 1)), Busy)
        assert bench.lie_down(id, **more) == Asleep()
        bench.advance(1)


def test_each_release_names_the_oldest_in_turn(bench: Bench) -> None:
    bench.run("a")
    put_off(bench, "b", "c", "d")
    for id, following in [("a", "b"), ("b", "c"), ("c", "d")]:
        assert bench.finish(id) == named(following)
        bench.run(following)
    assert bench.finish("d") == Released()


def test_the_order_is_that_of_the_first_put_off(bench: Bench) -> None:
    bench.run("a")
    put_off(bench, "b", "c")
    bench.advance(10)
    assert bench.lie_down("b") == Asleep()
    assert bench.finish("a") == named("b")


def test_a_lock_that_is_kept_names_the_oldest_as_well(bench: Bench) -> None:
    """It refuses dispatches, not starts."""
    bench.run("a")
    put_off(bench, "b")
    assert bench.finish("a", how=How.KEEP) == Kept(sleeper("b"))


@pytest.mark.parametrize("how", [How.HANDOVER, How.REQUEUE])
def test_a_run_that_goes_on_later_names_nobody(bench: Bench, how: How) -> None:
    bench.run("a")
    put_off(bench, "b")
    assert bench.finish("a", how=how) == HandedOver()


def test_who_holds_nothing_names_nobody(bench: Bench) -> None:
    bench.run("a")
    put_off(bench, "b")
    assert bench.finish("a", "another") == NotMine()
    assert bench.finish("a") == named("b")


def test_a_lost_reply_is_given_again_and_names_nobody_else(bench: Bench) -> None:
    bench.run("a")
    put_off(bench, "b", "c")
    assert bench.finish("a") == named("b")
    bench.run("b", "two")
    assert bench.finish("a") == named("b"), "it runs"
    assert bench.finish("b", "two") == named("c")
    assert bench.finish("b", "two") == named("c")
    assert bench.finish("a") == Released(), "it has ended"


def test_of_two_runs_each_release_names_one(bench: Bench) -> None:
    bench.run("a", gate=2)
    bench.run("b", gate=2)
    put_off(bench, "c", "d", "e", gate=2)
    assert bench.finish("a") == named("c")
    assert bench.finish("b") == named("d")


def test_who_comes_when_the_gate_has_opened_is_told_and_not_noted(bench: Bench) -> None:
    bench.run("a")
    bench.wait("b", counts="", call=b"b")
    assert isinstance(bench.claim("b", "b-first"), Busy)
    assert bench.finish("a") == Released(), "between the refused claim and the next step"
    assert bench.lie_down("b") == Open()
    bench.run("b")
    assert bench.finish("b") == Released()


def test_one_that_insists_lies_down_before_an_open_gate(bench: Bench) -> None:
    bench.wait("b", counts="", call=b"b")
    assert bench.lie_down("b", gate=0) == Asleep()
    bench.run("a")
    assert bench.finish("a") == named("b")


def test_a_lapsed_run_does_not_shut_the_gate(bench: Bench) -> None:
    bench.run("a", lease=5, late=7200)
    put_off(bench, "b")
    bench.advance(5)
    assert bench.lie_down("b") == Open()


# --- two messages at most ---------------------------------------------------------------------------


def test_one_that_was_woken_is_not_woken_again_by_its_own_put_offs(bench: Bench) -> None:
    """The message that sleeps comes and is put off again, while the second one is still in the queue."""
    bench.run("a")
    put_off(bench, "b")
    assert bench.finish("a") == named("b")
    bench.run("c")
    assert bench.lie_down("b") == Asleep()
    assert bench.finish("c") == Released()
    bench.run("d")
    assert bench.lie_down("b", woken=True) == Asleep(), "now the second one has met a shut gate"
    assert bench.finish("d") == named("b")


def test_one_that_was_woken_too_soon_keeps_its_place(bench: Bench) -> None:
    bench.run("a")
    put_off(bench, "b", "c")
    assert bench.finish("a") == named("b")
    bench.run("d")
    bench.advance(5)
    assert bench.lie_down("b", woken=True) == Asleep()
    assert bench.finish("d") == named("b")


def test_a_second_message_that_never_comes_is_waited_for_no_longer_than_the_first_sleeps(
    bench: Bench,
) -> None:
    bench.run("a", lease=5000)
    put_off(bench, "b", life=100)
    assert bench.finish("a") == named("b")
    bench.advance(100)
    bench.run("c")
    assert bench.lie_down("b") == Asleep()
    assert bench.finish("c") == named("b")


def test_a_job_that_has_started_and_goes_back_may_be_woken_again(bench: Bench) -> None:
    bench.run("a")
    put_off(bench, "b")
    assert bench.finish("a") == named("b")
    bench.run("b", late=7200)
    bench.finish("b", how=How.REQUEUE)
    bench.run("c")
    assert bench.lie_down("b") == Asleep()
    assert bench.finish("c") == named("b")


# --- who does not sleep -----------------------------------------------------------------------------


def test_one_whose_own_message_came_first_is_passed_over(bench: Bench) -> None:
    bench.run("a", gate=2)
    put_off(bench, "b", "c")
    bench.run("b", gate=2)
    assert bench.finish("a") == named("c")


def test_one_that_has_ended_or_was_called_off_is_passed_over(bench: Bench) -> None:
    bench.run("a", gate=3)
    put_off(bench, "b", "c", "d")
    bench.run("b", "two", gate=3)
    assert bench.finish("b", "two") == named("c")
    assert isinstance(bench.withdraw("d", waiting=True), Withdrawn)
    assert bench.finish("a") == Released()


def test_an_attempt_that_has_ended_is_passed_over(bench: Bench) -> None:
    bench.run("a", gate=2, lease=600)
    put_off(bench, "b")
    bench.run("b", gate=2)
    bench.finish("b", how=How.HANDOVER)
    assert bench.finish("a") == Released(), "its retry has a time of its own"
    bench.run("c")
    assert isinstance(bench.claim("b", "two", n=1), Busy)
    assert bench.lie_down("b", n=1) == Asleep()
    assert bench.finish("c") == named("b", 1)
    assert bench.claim("b", "late", n=0) == Done(), "the message of its first attempt that slept"


def test_one_that_was_superseded_is_passed_over(bench: Bench) -> None:
    bench.run("a")
    put_off(bench, "b")
    bench.mark_superseded("b", "c")
    assert bench.finish("a") == Released()


def test_nobody_is_woken_after_his_time(bench: Bench) -> None:
    """By then his message has come by itself, and perhaps his end is forgotten."""
    bench.run("a", lease=500)
    put_off(bench, "b", life=60)
    bench.advance(60)
    assert bench.finish("a") == Released()


def test_one_whose_call_lies_beside_its_seat_needs_no_place(bench: Bench) -> None:
    bench.run("a")
    bench.merge("b", b"newest")
    bench.confirm("b")
    assert bench.lie_down("b") == Asleep()
    newest = Overdue(REF, "b", 0, b"newest", "shop.recompute")
    assert bench.finish("a") == Released(newest)
    bench.run("b")
    assert bench.finish("b") == Released()


def test_one_whose_call_is_not_kept_sleeps_without_a_place(bench: Bench) -> None:
    bench.run("a")
    bench.wait("b", counts="")
    assert bench.lie_down("b", call=None) == Asleep()
    assert bench.finish("a") == Released()


@pytest.mark.parametrize("place", ["memory", "redis", "sqlite_wal"])
def test_a_line_has_a_hundred_places(request: pytest.FixtureRequest, place: str) -> None:
    bench: Bench = request.getfixturevalue(f"{place}_bench")
    bench.run("a", lease=5000)
    ids = [f"b{n:03}" for n in range(MOST + 1)]
    put_off(bench, *ids)
    bench.withdraw(ids[0], waiting=True)
    assert bench.lie_down(ids[-1]) == Asleep(), "now there is one for it"
    for before, id in zip(["a", *ids[1:]], ids[1:], strict=False):
        assert bench.finish(before) == named(id)
        bench.run(id, lease=5000)
    assert bench.finish(ids[-1]) == Released()


# --- lapses ------------------------------------------------------------------------------------------


def test_the_reaper_names_the_oldest_behind_a_lost_run(bench: Bench) -> None:
    bench.run("a", lease=5)
    put_off(bench, "b", "c")
    bench.advance(5)
    reaped = bench.reap()
    assert [lapse.id for lapse in reaped.lapses] == ["a"]
    assert reaped.waiters == (sleeper("b"),)
    assert bench.reap() == Reaped((), ())


# --- what is kept, and for how long ------------------------------------------------------------------


def test_nothing_is_left_when_all_have_run(redis_bench: RedisBench) -> None:
    bench = redis_bench
    bench.run("a")
    put_off(bench, "b", "c")
    for id, following in [("a", "b"), ("b", "c")]:
        bench.finish(id)
        bench.run(following)
    bench.finish("c")
    assert bench.client.keys("*asleep:*") == []
    assert bench.client.keys("*calls:*") == []


def test_a_line_lives_no_longer_than_the_sleep(redis_bench: RedisBench) -> None:
    redis_bench.run("a")
    put_off(redis_bench, "b", life=60)
    (line,), (calls,) = redis_bench.client.keys("*asleep:*"), redis_bench.client.keys("*calls:*")
    for key in (line, calls):
        assert 0 < redis_bench.client.pttl(key) <= 60_000


def test_memory_forgets_lines_that_nobody_sleeps_in(memory_bench: MemoryBench) -> None:
    bench = memory_bench
    bench.run("a")
    put_off(bench, "b", life=60)
    bench.advance(60)
    shelf = bench.store._shelves[REF.shard]
    shelf.crowded = 0
    bench.record()
    assert shelf.lines == {}


def test_a_place_is_a_column_of_the_row(database: DatabaseBench) -> None:
    """And goes with the seat."""
    database.run("a")
    put_off(database, "b")
    rows = JobIntent.objects.using(database.engine.alias)
    assert rows.get(token="b").asleep.startswith("[")
    assert database.finish("a") == named("b")
    database.run("b")
    database.finish("b")
    assert not rows.exclude(asleep="").exists()


# --- racing ------------------------------------------------------------------------------------------


def alone(step: Callable[[], Any]) -> Any:
    """Take a step in a thread, and close its database connections."""
    try:
        return step()
    finally:
        connections.close_all()


@pytest.mark.parametrize("engine", ["redis", "sqlite_wal", "postgresql", "mariadb"])
def test_a_release_and_a_put_off_at_once_never_miss_each_other(
    request: pytest.FixtureRequest, engine: str
) -> None:
    """Either the release names the sleeper, or the sleeper is told that the gate is open."""
    bench: Bench = request.getfixturevalue(f"{engine}_bench")
    rounds = 100 if engine == "redis" else 8
    with ThreadPoolExecutor(2) as pool:
        for number in range(rounds):
            ref, store = Ref(7, f"{number:064}"), bench.store
            store.claim(Claim(ref, "a", 0, "one"))
            store.acquire(Acquire(ref, "b", counts="", call=b"b"))
            store.confirm([(ref, "b")])
            call = None if store.durable else b"b"
            slept = pool.submit(alone, partial(store.asleep, Sleep(ref, "b", call=call)))
            ended = pool.submit(alone, partial(store.finish, Finish(Token(ref, "a", "one"), 0)))
            told, released = slept.result(), ended.result()
            assert isinstance(told, Asleep | Open), told
            assert isinstance(released, Released), released
            assert (told == Open()) == (released.waiter is None), number


def contend(store: Store, jobs: int) -> tuple[list[str], int, int]:
    """Let jobs meet one gate in a broker of one queue; a sleeper is due every other step, a run takes four.

    Give who ran, the most messages that one job had, and how many starts met the gate.
    """
    queue = deque((f"j{n:04}", False) for n in range(jobs))
    asleep: deque[str] = deque()
    out = Counter(id for id, _ in queue)
    ran: list[str] = []
    most, shut, step, current = 1, 0, 0, ""
    while queue or asleep or current:
        step += 1
        if step % 2 == 0 and asleep:
            queue.append((asleep.popleft(), False))
        if current and step % 4 == 0:
            answer = store.finish(Finish(Token(REF, current, f"{current}-run"), 0, marker_ttl=7200))
            assert isinstance(answer, Released)
            ran.append(current)
            current = ""
            if answer.waiter is not None:
                queue.append((answer.waiter.id, True))
                out[answer.waiter.id] += 1
                most = max(most, out[answer.waiter.id])
        if not queue:
            continue
        id, woken = queue.popleft()
        told = store.claim(Claim(REF, id, 0, f"{id}-{step}" if current else f"{id}-run"))
        if isinstance(told, Busy) and not told.own:
            shut += 1
            assert store.asleep(Sleep(REF, id, call=b"x", woken=woken)) == Asleep()
        if isinstance(told, Busy) and not woken:
            asleep.append(id)
            continue
        out[id] -= 1
        if isinstance(told, Claimed):
            assert not current, "two at once"
            current = id
        elif not isinstance(told, Busy):
            assert told == Done(), told
    return ran, most, shut


@pytest.mark.parametrize(("place", "jobs"), [("memory", 600), ("redis", 200)])
def test_hundreds_of_contending_jobs_have_two_messages_at_most_and_run_once_each(
    request: pytest.FixtureRequest, place: str, jobs: int
) -> None:
    bench: Bench = request.getfixturevalue(f"{place}_bench")
    ran, most, shut = contend(bench.store, jobs)
    assert sorted(ran) == [f"j{n:04}" for n in range(jobs)]
    assert most == 2
    assert shut > 2 * jobs, "they were in each other's way"


def test_a_dead_store_is_not_an_error(redis_store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_store.line.breaker, "refuses", lambda: True)
    assert isinstance(redis_store.asleep(Sleep(REF, "b", call=b"b")), Unavailable)
