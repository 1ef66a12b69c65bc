"""Many callers at a barrier on one key: exactly one is accepted, all others hold its id."""

from __future__ import annotations

import multiprocessing
import threading
from collections import defaultdict
from typing import Any

import pytest

from django_jobdedup.stores.base import Store
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.requests import Acquire, Claim
from django_jobdedup.stores.results import Acquired, Busy, Claimed, Held
from testproject.embedded_redis import EmbeddedRedis

from .caller import call, key

CALLERS, ROUNDS = 16, 200


def check_rounds(told: dict[int, list[tuple[str, Any]]]) -> None:
    """Insist on one accepted a round, whose id the others hold."""
    assert len(told) == ROUNDS
    for answers in told.values():
        winners = [id for id, answer in answers if isinstance(answer, Acquired)]
        assert len(winners) == 1
        losers = [answer for _, answer in answers if isinstance(answer, Held)]
        assert len(losers) == CALLERS - 1
        assert {answer.id for answer in losers} == set(winners)


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest, locks: None) -> Store:
    """Each store, on its own clock."""
    return MemoryStore() if request.param == "memory" else request.getfixturevalue("redis_store")


def test_threads_race_for_a_key(store: Store) -> None:
    barrier = threading.Barrier(CALLERS)
    told: dict[int, list[tuple[str, Any]]] = defaultdict(list)

    def work(caller: int) -> None:
        for number in range(ROUNDS):
            id = f"{caller}-{number}"
            barrier.wait()
            told[number].append((id, store.acquire(Acquire(key(number), id))))

    run(work)
    check_rounds(told)


def test_threads_race_for_a_running_seat(store: Store) -> None:
    """Two deliveries of every id, all at once: one runs, all others are put off."""
    barrier = threading.Barrier(CALLERS)
    answers: dict[int, list[Any]] = defaultdict(list)

    def work(caller: int) -> None:
        for number in range(ROUNDS):
            barrier.wait()
            answers[number].append(store.claim(Claim(key(number), f"id{caller % 8}", 0, f"nonce{caller}")))

    run(work)
    for told in answers.values():
        assert sorted(type(answer).__name__ for answer in told) == ["Busy"] * (CALLERS - 1) + ["Claimed"]
    fences = [a.fence for told in answers.values() for a in told if isinstance(a, Claimed)]
    assert len(set(fences)) == ROUNDS
    assert all(isinstance(a, Busy | Claimed) for told in answers.values() for a in told)


def run(work: Any) -> None:
    """Run the callers to their end."""
    threads = [threading.Thread(target=work, args=(caller,)) for caller in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.timeout(120)
def test_processes_race_for_a_key(redis_store: RedisStore, server: EmbeddedRedis) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "tests.stores.caller"])
    barrier, results = context.Barrier(CALLERS), context.Queue()
    processes = [
        context.Process(target=call, args=(caller, server.url, ROUNDS, barrier, results))
        for caller in range(CALLERS)
    ]
    for process in processes:
        process.start()
    told: dict[int, list[tuple[str, Any]]] = defaultdict(list)
    for _ in processes:
        for number, id, answer in results.get(timeout=90):
            told[number].append((id, answer))
    for process in processes:
        process.join()
        process.close()
    results.close()
    results.join_thread()
    check_rounds(told)
