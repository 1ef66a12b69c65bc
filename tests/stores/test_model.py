"""Memory and Redis side by side through a random world, against the promises P1 to P6."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from .bench import Bench, MemoryBench, RedisBench
from .conftest import ALIAS
from .machine import StoreMachine

EXAMPLES = int(os.environ.get("JOBDEDUP_EXAMPLES", "150"))
"""How many random walks: 150 where every push waits for them, thousands at night."""

WALK = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.timeout(60 + EXAMPLES)
def test_both_stores_keep_every_promise(client: Redis) -> None:
    redis_bench = RedisBench(client, ALIAS)

    class SideBySide(StoreMachine):
        def benches(self) -> list[Bench]:
            redis_bench.clear()
            return [MemoryBench(), redis_bench]

    run_state_machine_as_test(SideBySide, settings=WALK)
