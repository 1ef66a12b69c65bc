"""The stores side by side through a random world, against the promises P1 to P6.

``JOBDEDUP_STEPS=50000`` walks as many steps over each pairing of stores, and says so; ``JOBDEDUP_SEED`` takes
the way of an earlier run, which an error names.
"""

from __future__ import annotations

import os
from random import randrange

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from .bench import Bench, DatabaseBench, MemoryBench, RedisBench
from .conftest import ALIAS
from .interrupting import InterruptedBench, InterruptedMachine
from .machine import StoreMachine
from .strolling import LONGEST, stroll
from .walking import Tally, Walk

ASKED = int(os.environ.get("JOBDEDUP_STEPS", "0"))
"""How many steps each pairing walks at least; 0: some thousands, where every push waits for them."""
SEED = int(os.environ.get("JOBDEDUP_SEED") or (0 if os.environ.get("CI") else randrange(2**32)))
"""At home each run looks elsewhere; in CI the same commit gives the same answer."""
ENOUGH = 20_000
"""So many steps have met every answer."""
ANSWERS = (
    "acquire: Acquired", "acquire: Held", "acquire: Merged", "acquire: Outside", "receive: Acquired",
    "receive: Held", "receive: Merged", "confirm: Confirmed", "confirm: Gone", "withdraw: Withdrawn",
    "withdraw: Owed", "withdraw: Gone", "claim: Claimed", "claim: Superseded", "claim: Done", "claim: Busy",
    "claim: Early", "claim: Exhausted", "renew: Renewed", "renew: Lost", "finish: Released", "finish: Kept",
    "finish: HandedOver", "finish: NotMine", "reap: Reaped", "remove: Withdrawn", "remove: Gone",
)  # fmt: skip


def walk(machine: type[Walk], usual: int, over: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Walk, and count."""
    machine.tally = tally = Tally()
    stroll(machine, SEED, steps=ASKED or usual)
    if tally.steps >= ENOUGH:
        dozing = ("asleep: Asleep", "asleep: Open") if machine.dozes else ()
        assert not [answer for answer in (*ANSWERS, *dozing) if not tally.met[answer]]
    if ASKED:
        with capsys.disabled():
            print(f"\n{over}: {tally.steps} steps in {tally.walks} walks, {tally.met.total()} answers")


def side_by_side(*benches: RedisBench | DatabaseBench) -> type[Walk]:
    """Return a walk over stores that must give the same answers all the way; memory is among them."""

    # A durable store notes only who has a row with its call, see the tests of ``asleep``.
    alone = all(isinstance(bench, RedisBench) for bench in benches)

    class SideBySide(StoreMachine):
        tally = Tally()
        dozes = alone

        def benches(self) -> list[Bench]:
            for bench in benches:
                bench.clear()
            return [MemoryBench(), *benches]

    return SideBySide


@pytest.mark.timeout(60 + ASKED // 10)
def test_redis_keeps_every_promise_and_so_does_memory(
    client: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    walk(side_by_side(RedisBench(client, ALIAS)), 4000, "memory, Redis", capsys)


@pytest.mark.timeout(60 + ASKED // 10)
def test_the_database_store_keeps_them_on_sqlite(
    sqlite_wal_bench: DatabaseBench, capsys: pytest.CaptureFixture[str]
) -> None:
    walk(side_by_side(sqlite_wal_bench), 1000, "memory, SQLite", capsys)


@pytest.mark.timeout(60 + ASKED // 10)
def test_the_database_store_keeps_them_on_postgresql(
    postgresql_bench: DatabaseBench, capsys: pytest.CaptureFixture[str]
) -> None:
    walk(side_by_side(postgresql_bench), 600, "memory, PostgreSQL", capsys)


@pytest.mark.timeout(60 + ASKED // 10)
def test_the_database_store_keeps_them_on_mariadb(
    mariadb_bench: DatabaseBench, capsys: pytest.CaptureFixture[str]
) -> None:
    walk(side_by_side(mariadb_bench), 600, "memory, MariaDB", capsys)


@pytest.mark.timeout(60 + ASKED // 10)
def test_the_database_store_keeps_them_while_others_come_between(
    sqlite_wal_bench: DatabaseBench, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(InterruptedMachine):
        bench = InterruptedBench(sqlite_wal_bench.engine)

    walk(Interrupted, 3000, "SQLite, others in between", capsys)
    Interrupted.bench.store.close()


def test_a_short_way_to_a_broken_promise_is_looked_for(
    client: Redis, sqlite_wal_bench: DatabaseBench
) -> None:
    """Hypothesis walks less, but over three stores at once, and finds the shortest way to a mistake."""
    few = settings(
        max_examples=15,
        stateful_step_count=LONGEST,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(side_by_side(RedisBench(client, ALIAS), sqlite_wal_bench), settings=few)
