"""The random walk finds known mistakes of the database store; the store walks alone, and is interrupted."""

from __future__ import annotations

import pytest

from tests.rig.engines import Engine

from .database_mutants import MUTANTS, DatabaseMutant
from .interrupting import InterruptedBench, InterruptedMachine
from .policies import POLICIES
from .strolling import stroll
from .test_mutants import WALKS
from .walking import Tally


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_walk_finds_the_mistake(
    sqlite_engine: Engine, locks: None, mutant: DatabaseMutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Alone(InterruptedMachine):
        tally = Tally()
        policies = tuple(p for p in POLICIES if not mutant.policies or p.name in mutant.policies)
        late = mutant.late
        bench = InterruptedBench(sqlite_engine)

    mutant.plant(monkeypatch)
    with pytest.raises(AssertionError):
        stroll(Alone, 0, walks=WALKS)
    Alone.bench.store.close()
    assert Alone.bench.store.line.breaker.error == "", "a mistake of logic, not a statement that does not run"
