"""One soak from the first call to the last lock: who calls, who strikes, when all is drained."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django_jobdedup.header import task_id_of
from django_jobdedup.recovery.duty import Tally
from django_jobdedup.stores.handler import stores
from testproject.celery import app
from tests.rig.forking import Zygote
from tests.rig.process import alive
from tests.rig.redelivery import restore_lapsed

from . import caller, pen
from .caller import Called
from .fleet import Fleet
from .judge import COLD, judge
from .pen import Run
from .scene import Scene

CALLERS: Final = 3
PAUSES: Final = (1.0, 2.0)
"""Seconds between two strikes."""
DRAINED_WITHIN: Final = 60.0
"""Seconds; it takes a fraction of that."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it: ``cold`` are the workers that were told to drop their work, times are seconds.

    ``noted`` are the jobs of which the store has noted that a run was lost.
    """

    calls: list[Called]
    runs: list[Run]
    struck: Counter[str]
    cold: set[str]
    swept: Tally
    noted: set[str]
    called: float
    drained: float

    def wrongs(self, stage: Scene) -> list[str]:
        """Have it judged."""
        cold = {run.id for run in self.runs if not run.whole and run.worker in self.cold}
        return judge(self.calls, self.runs, lambda id: COLD if id in cold else stage.state_of(id), self.noted)

    def tell(self) -> None:
        """Print what happened."""
        counters = stores["default"].counters()
        assert isinstance(counters, dict), counters
        counted: Counter[str] = Counter()
        for numbers in counters.values():
            counted.update(numbers)
        redelivered = sum(run.redelivered for run in self.runs)
        print(f"struck {sum(self.struck.values())}: {dict(self.struck)}")
        print(f"calls {len(self.calls)}: {dict(Counter(call.outcome for call in self.calls))}")
        print(f"runs {len(self.runs)}: {dict(Counter(run.how or 'cut off' for run in self.runs))}")
        print(f"redelivered {redelivered}, the store counted {dict(counted)}, swept {dict(self.swept)}")
        print(f"called for {self.called:.0f} s, drained {self.drained:.0f} s later")


def play(stage: Scene, folder: Path, seed: int, calls: int, seconds: float) -> Played:
    """Make so many calls in so many seconds at least, while workers die, and wait until all is drained."""
    print(f"\nseed {seed}")
    chosen, begun = random.Random(seed), time.monotonic()
    with Zygote(stage.environment, folder, "tests.soak.orders") as zygote:
        zygote.order(do="maintain", words=[], log=str(folder / "maintain.log"))
        with Fleet(stage.environment, zygote, folder, chosen) as fleet:
            files = list(_callers(zygote, folder, seed, calls, seconds))
            fleet.wait_until_ready()
            while any(alive(pid) for pid, _ in files):
                restore_lapsed(app)  # before kombu 5.7 the workers do not
                time.sleep(chosen.uniform(*PAUSES))
                fleet.strike()
            called = time.monotonic() - begun
            fleet.settle()
            swept = stage.drain(DRAINED_WITHIN)
            drained = time.monotonic() - begun - called
    made = [call for _, path in files for call in caller.read(path)]
    events = stage.events()
    # For people who look for the cause of something.
    (folder / "events").write_text("".join(f"{event}\n" for event in events))
    noted = {task_id_of(event.id) for event in events if event.what == "lost"}
    runs = pen.read(folder / "journal")
    return Played(made, runs, fleet.struck, fleet.cold, swept, noted, called, drained)


def _callers(
    zygote: Zygote, folder: Path, seed: int, calls: int, seconds: float
) -> Iterator[tuple[int, Path]]:
    """Start those that call; give their pids, and the files of what they call."""
    for number in range(CALLERS):
        own = calls // CALLERS + (number < calls % CALLERS)
        path = folder / f"calls-{number}"
        words = [str(word) for word in (number, own, seconds, seed, path)]
        yield zygote.order(do="call", words=words, log=str(folder / f"caller-{number}.log")), path
