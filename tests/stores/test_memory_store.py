"""What only the memory store has: one process, a clock to move, memory that does not grow."""

from __future__ import annotations

import os
import time
from typing import Any

from django_jobdedup import signals
from django_jobdedup.stores.clock import Clock
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token
from django_jobdedup.stores.results import Acquired, Claimed, Held, Released, Unavailable

from .bench import REF, MemoryBench
from .test_redis_down import in_a_child


def test_its_clock_runs_and_can_be_moved() -> None:
    store = MemoryStore()
    answer = store.acquire(Acquire(REF, "a", pending=15))
    assert isinstance(answer, Acquired)
    assert abs(answer.at - time.time()) < 1
    assert isinstance(store.acquire(Acquire(REF, "b")), Held)
    store.clock.advance(15)
    assert isinstance(store.acquire(Acquire(REF, "b")), Acquired)


def test_a_clock_with_a_start_stands_still() -> None:
    clock = Clock(100.0)
    assert clock.micros() == clock.micros() == 100_000_000
    clock.advance(-0.5)
    assert clock.micros() == 99_500_000


def test_it_never_asks_for_a_worker() -> None:
    assert MemoryStore.needs_presence is False


def test_it_refuses_other_processes_and_says_why() -> None:
    store = MemoryStore()
    store.acquire(Acquire(REF, "a"))
    heard: list[str] = []

    def listen(sender: object, error: str, **_: Any) -> None:
        heard.append(error)

    def work() -> None:
        signals.store_unavailable.connect(listen)
        answer = store.acquire(Acquire(REF, "b"))
        assert isinstance(answer, Unavailable)
        assert answer.error == heard[0]
        assert f"process {os.getppid()} was used in process {os.getpid()}" in answer.error
        assert all(isinstance(one, Unavailable) for one in store.confirm([(REF, "a"), (REF, "b")]))

    in_a_child(work)
    assert isinstance(store.acquire(Acquire(REF, "b")), Held)


def test_what_has_expired_is_dropped(memory_bench: MemoryBench) -> None:
    """Records after their grace time, markers after their life; nobody needs to reap."""
    store = memory_bench.store
    assert isinstance(store, MemoryStore)
    for number in range(5000):
        ref, id = Ref(7, f"{number:064}"), f"id{number}"
        store.acquire(Acquire(ref, id, pending=1))
        if number % 2:
            assert isinstance(store.claim(Claim(ref, id, 0, "n")), Claimed)
            assert store.finish(Finish(Token(ref, id, "n"), 0, marker_ttl=60)) == Released()
        memory_bench.advance(60)
    shelf = store._shelves[7]
    assert len(shelf.entries) + len(shelf.marks) < 4500


def test_events_are_capped(memory_bench: MemoryBench) -> None:
    for number in range(10_050):
        memory_bench.finish(f"id{number}", "stranger")
    events = memory_bench.store.events(7, limit=20_000)
    assert len(events) == 10_000
    assert events[0].id == "id50"
    assert memory_bench.store.events(7, after="gone long ago", limit=1) == events[:1]
