"""The random walk finds known mistakes: each is planted in the Lua scripts, and must be found.

Redis walks alone here, so it is the promises that find a mistake, not the comparison with memory.
"""

from __future__ import annotations

import pytest
from redis import Redis

from .bench import Bench, RedisBench
from .conftest import ALIAS
from .line_mutants import LINE_MUTANTS
from .machine import StoreMachine
from .mutants import MUTANTS, Mutant
from .policies import POLICIES
from .rule_mutants import RULE_MUTANTS
from .strolling import stroll
from .walking import Tally

WALKS = 2000
"""How many walks may pass before a mistake is found; nearly all are found within a hundred."""


def machine(bench: RedisBench, mutant: Mutant) -> type[StoreMachine]:
    """The same machine, on the one store."""

    class Alone(StoreMachine):
        tally = Tally()
        policies = tuple(p for p in POLICIES if not mutant.policies or p.name in mutant.policies)
        late = mutant.late
        dozes = mutant in LINE_MUTANTS

        def benches(self) -> list[Bench]:
            bench.clear()
            return [bench]

    return Alone


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", [*MUTANTS, *RULE_MUTANTS, *LINE_MUTANTS], ids=lambda mutant: mutant.name)
def test_the_walk_finds_the_mistake(client: Redis, mutant: Mutant) -> None:
    bench = RedisBench(client, ALIAS, mutant.edit)
    with pytest.raises(AssertionError):
        stroll(machine(bench, mutant), 1, walks=WALKS)
    assert bench.store.line.breaker.error == "", "a mistake of logic, not a script that does not run"
