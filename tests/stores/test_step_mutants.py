"""The random walk finds known mistakes of the steps that two stores share; the memory store walks alone."""

from __future__ import annotations

import pytest

from .bench import Bench, MemoryBench
from .line_mutants import LINE_STEP_MUTANTS
from .machine import StoreMachine
from .policies import POLICIES
from .step_mutants import STEP_MUTANTS, StepMutant
from .strolling import stroll
from .test_mutants import WALKS
from .walking import Tally


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", [*STEP_MUTANTS, *LINE_STEP_MUTANTS], ids=lambda mutant: mutant.name)
def test_the_walk_finds_the_mistake(locks: None, mutant: StepMutant, monkeypatch: pytest.MonkeyPatch) -> None:
    class Alone(StoreMachine):
        tally = Tally()
        policies = tuple(p for p in POLICIES if not mutant.policies or p.name in mutant.policies)
        late = mutant.late
        dozes = mutant in LINE_STEP_MUTANTS

        def benches(self) -> list[Bench]:
            return [MemoryBench()]

    mutant.plant(monkeypatch)
    with pytest.raises(AssertionError):
        stroll(Alone, 0, walks=WALKS)
