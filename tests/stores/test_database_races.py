"""Eight processes on one database: one winner a round, exact sums, and no deadlock for anybody (U48)."""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobdedup.models import Counter, JobIntent
from django_jobdedup.stores.database import line
from django_jobdedup.stores.record import Record
from django_jobdedup.stores.requests import Token
from django_jobdedup.stores.results import Acquired, Busy, Claimed, Held, Lost, Renewed, Unavailable
from tests.rig.engines import Engine

from .bench import OTHER, REF, Bench, DatabaseBench
from .rival import ADDS, KEYS, compete

RIVALS, ROUNDS, FEW = 8, 100, 10


def race(engine: Engine, rounds: int = ROUNDS, *, pooled: bool = False) -> list[dict[str, Any]]:
    """Let the rivals compete; what each was told."""
    Counter.objects.using(engine.alias).create(key="sum", name="", what="sum")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "tests.stores.caller", "tests.stores.rival"])
    barrier, results = context.Barrier(RIVALS), context.Queue()
    processes = [
        context.Process(target=compete, args=(rival, engine, rounds, pooled, barrier, results))
        for rival in range(RIVALS)
    ]
    for process in processes:
        process.start()
    told = [results.get(timeout=110) for _ in processes]
    for process in processes:
        process.join()
        process.close()
    results.close()
    results.join_thread()
    errors = [answers["error"] for answers in told if "error" in answers]
    assert not errors, "\n".join(errors)
    return told


def check(engine: Engine, told: list[dict[str, Any]], rounds: int = ROUNDS) -> None:
    """Insist on what every discipline promises."""
    for number in range(rounds):
        answers = [answers["take_keys"][number] for answers in told]
        winners = [id for id, answer in answers if isinstance(answer, Acquired)]
        assert len(winners) == 1, answers
        assert [a.id for _, a in answers if isinstance(a, Held)] == winners * (RIVALS - 1)
        starts = [answers["take_seats"][number] for answers in told]
        assert sum(isinstance(answer, Claimed) for answer in starts) == 1, starts
        assert sum(isinstance(answer, Busy) for answer in starts) == RIVALS - 1, starts
    total = Counter.objects.using(engine.alias).get(key="sum").number
    assert total == sum(answers["add_up"] for answers in told) == RIVALS * ADDS
    many: defaultdict[str, list[Any]] = defaultdict(list)
    for answers in told:
        for fingerprint, _, answer in answers["take_many"]:
            many[fingerprint].append(answer)
    assert len(many) == rounds // 5 * KEYS
    for some in many.values():
        assert sum(isinstance(answer, Acquired) for answer in some) == 1, some
        assert sum(isinstance(answer, Held) for answer in some) == RIVALS - 1, some
    assert sum(answers["defer_two"] for answers in told) == 2 * (rounds // 5)


@pytest.mark.timeout(150)
def test_processes_compete(engine: Engine, locks: None) -> None:
    check(engine, race(engine))


@pytest.mark.timeout(150)
def test_processes_compete_behind_a_pooler(postgresql_engine: Engine, locks: None) -> None:
    """Nothing rests on the session: each statement goes over another connection."""
    check(postgresql_engine, race(postgresql_engine, FEW, pooled=True), FEW)


@pytest.mark.timeout(150)
def test_processes_compete_at_the_strictest_isolation(postgresql_engine: Engine, locks: None) -> None:
    options = {**postgresql_engine.database["OPTIONS"], "isolation_level": 3}  # SERIALIZABLE
    strict = replace(
        postgresql_engine,
        database={**postgresql_engine.database, "OPTIONS": options},
    )
    check(postgresql_engine, race(strict, FEW), FEW)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_processes_compete_at_other_isolations(mariadb_engine: Engine, locks: None, level: str) -> None:
    options = {**mariadb_engine.database["OPTIONS"], "isolation_level": level}
    strict = replace(mariadb_engine, database={**mariadb_engine.database, "OPTIONS": options})
    check(mariadb_engine, race(strict, FEW), FEW)


@pytest.mark.parametrize("bench", ["postgresql", "mariadb"], indirect=True)
def test_a_locked_row_does_not_stop_the_renewal_of_others(bench: Bench) -> None:
    """A body publishes its own id in a transaction that stays open; SQLite has one writer anyway."""
    assert isinstance(bench, DatabaseBench)
    other = Token(OTHER, "b", "one", 30)
    bench.run("a", lease=20)
    bench.claim("b", ref=OTHER, lease=20)
    tokens = [Token(REF, "a", "one", 30), other]
    with transaction.atomic(bench.engine.alias), ThreadPoolExecutor(1) as pool:
        bench.again("a", call=b"x")
        bench.advance(10)
        answers = pool.submit(renew, bench, [*tokens, Token(REF, "c", "one", 30)]).result(timeout=20)
        assert bench.renew("a") == Renewed(), "its own transaction is not in its own way"
    assert [type(answer) for answer in answers] == [Unavailable, Renewed, Lost]
    record = bench.store.inspect(OTHER)
    assert isinstance(record, Record)
    assert record.holders[0].lease == bench.now + 30
    assert bench.store.renew(tokens) == [Renewed(), Renewed()]
    assert bench.store.line.breaker.error == ""


def renew(bench: DatabaseBench, tokens: list[Token]) -> list[Any]:
    """Renew on a connection of this thread's own."""
    try:
        return list(bench.store.renew(tokens))
    finally:
        connections[bench.engine.alias].close()


@pytest.mark.parametrize("bench", ["postgresql"], indirect=True)
def test_a_refused_call_does_not_wait_for_a_locked_row(bench: Bench) -> None:
    """It would only wait to count itself: here until the limit of a statement, on a row that stays locked."""
    assert isinstance(bench, DatabaseBench)
    bench.wait("a")
    with transaction.atomic(bench.engine.alias), ThreadPoolExecutor(1) as pool:
        JobIntent.objects.using(bench.engine.alias).select_for_update().get()
        answer = pool.submit(with_limit, bench, lambda: bench.acquire("b")).result(timeout=20)
    assert isinstance(answer, Held)
    assert bench.store.line.breaker.error == ""


@pytest.mark.parametrize("bench", ["postgresql", "mariadb"], indirect=True)
def test_a_statement_over_its_time_closes_no_other_lock(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locked row fails the calls that need it; the database answers, so all others go on."""
    assert isinstance(bench, DatabaseBench)
    monkeypatch.setattr(line, "BUSY_TIME", 0.1)
    bench.wait("a")
    with transaction.atomic(bench.engine.alias), ThreadPoolExecutor(1) as pool:
        JobIntent.objects.using(bench.engine.alias).select_for_update().get()
        answers = pool.submit(
            with_limit, bench, lambda: (bench.claim("a"), bench.acquire("b", ref=OTHER))
        ).result(timeout=20)
    assert [type(answer) for answer in answers] == [Unavailable, Acquired]
    assert bench.store.line.breaker.error == ""
    bench.run("a")


def with_limit(bench: DatabaseBench, work: Any) -> Any:
    """Do some work on a connection whose statements may take 0.3 seconds."""
    limits = {
        "postgresql": "SET statement_timeout = 300",
        "mysql": "SET SESSION max_statement_time = 0.3",
    }
    connection = connections[bench.engine.alias]
    try:
        with connection.cursor() as cursor:
            cursor.execute(limits[connection.vendor])
        return work()
    finally:
        connection.close()
