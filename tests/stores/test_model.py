"""The stores side by side through a random world, against the promises P1 to P6."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from .bench import Bench, DatabaseBench, MemoryBench, RedisBench
from .conftest import ALIAS
from .interrupting import InterruptedBench, InterruptedMachine
from .machine import StoreMachine

EXAMPLES = int(os.environ.get("JOBDEDUP_EXAMPLES", "150"))
"""How many random walks: 150 where every push waits for them, thousands at night."""
FEW = max(EXAMPLES // 8, 1)
"""How many over a server that takes its time for every commit."""

WALK = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def walk(benches: list[Bench], examples: int) -> None:
    """Walk over stores that must give the same answers all the way."""

    class SideBySide(StoreMachine):
        def benches(self) -> list[Bench]:
            for bench in benches:
                if isinstance(bench, RedisBench | DatabaseBench):
                    bench.clear()
            return [MemoryBench(), *benches]

    run_state_machine_as_test(SideBySide, settings=settings(WALK, max_examples=examples))


@pytest.mark.timeout(60 + EXAMPLES)
def test_all_three_stores_keep_every_promise(client: Redis, sqlite_wal_bench: DatabaseBench) -> None:
    walk([RedisBench(client, ALIAS), sqlite_wal_bench], EXAMPLES)


@pytest.mark.timeout(60 + 10 * FEW)
def test_the_database_store_keeps_them_on_postgresql(postgresql_bench: DatabaseBench) -> None:
    walk([postgresql_bench], FEW)


@pytest.mark.timeout(60 + 10 * FEW)
def test_the_database_store_keeps_them_on_mariadb(mariadb_bench: DatabaseBench) -> None:
    walk([mariadb_bench], FEW)


@pytest.mark.timeout(60 + EXAMPLES)
def test_the_database_store_keeps_them_while_others_come_between(sqlite_wal_bench: DatabaseBench) -> None:
    class Interrupted(InterruptedMachine):
        bench = InterruptedBench(sqlite_wal_bench.engine)

    run_state_machine_as_test(Interrupted, settings=WALK)
    Interrupted.bench.store.close()
