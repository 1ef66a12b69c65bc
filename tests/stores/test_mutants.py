"""The random walk finds known mistakes: each is planted in the Lua scripts, and must be found.

Redis walks alone here, so it is the promises that find a mistake, not the comparison with memory.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from .bench import Bench, RedisBench
from .conftest import ALIAS
from .machine import StoreMachine
from .mutants import MUTANTS, Mutant
from .world import POLICIES

SEARCH = settings(
    max_examples=4000,
    stateful_step_count=30,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def machine(bench: RedisBench, mutant: Mutant) -> type[StoreMachine]:
    """The same machine, on the one store."""

    class Alone(StoreMachine):
        policies = tuple(p for p in POLICIES if not mutant.policies or p.name in mutant.policies)
        late = mutant.late

        def benches(self) -> list[Bench]:
            bench.clear()
            return [bench]

    return Alone


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_walk_finds_the_mistake(client: Redis, mutant: Mutant) -> None:
    bench = RedisBench(client, ALIAS, mutant.edit)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine(bench, mutant), settings=SEARCH)
    assert bench.store.line.breaker.error == "", "a mistake of logic, not a script that does not run"
