"""The play: a worker, the storm, the kill, another worker, the verdict."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .facts import Asked, Ran, read_runs
from .screen import Screen
from .storm import Storm, storm
from .sweep import Sweep
from .tally import KINDS, Tally, cut_runs, finished
from .verdict import Verdict, accepted_twice, judge
from .worker import PROCESSES, Worker
from .world import World

LOOK = 0.05
"""Seconds between two looks into the database."""

KILL_AFTER = 1.5
"""Seconds of storm before the kill."""

MIDDLE = (0.15, 0.55)
"""Age, in seconds, of a run that is neither just begun nor about to end."""

NO_LATER_THAN = 4.0
"""Seconds of storm after which the kill no longer waits until every run is in its middle."""

PATIENCE = 15.0
"""Seconds without any progress after which what is missing counts as lost."""

HUSH = 4.0
"""The same where the broker holds no message: nothing more can come, what was acked at its start may run."""


@dataclass(slots=True)
class Play:
    """One demo from the first worker to the verdict; ``stack`` ends what it starts."""

    world: World
    screen: Screen
    stack: contextlib.ExitStack
    asked: list[Asked] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    killed_at: float | None = None

    def run(self) -> Verdict:
        """Play it; the screen has shown the table by then."""
        self.screen.note(f"{self.world.described()}, SQLite in a temporary folder")
        first = self._start("first")
        calls = self.stack.enter_context(storm())
        self.asked = calls.asked
        calls.begin()
        self._storm_until_the_kill(calls, first)
        self._start("second", calls)
        if self._watch(calls, "the second worker works", self._recovered):
            self._watch(calls, "the rest", lambda: self._settled(calls))
        calls.stop()
        self.ran = read_runs()
        self.screen.end(self._tallies())
        return judge(self.asked, self.ran, self.killed_at)

    def _start(self, name: str, calls: Storm | None = None) -> Worker:
        worker = self.stack.enter_context(Worker(name, self.world.folder))
        while not worker.is_ready():
            if calls is not None:
                self._look(calls, f"the {name} worker starts")
            time.sleep(LOOK)
        self.screen.note(f"the {name} worker is ready, with {PROCESSES} processes")
        return worker

    def _storm_until_the_kill(self, calls: Storm, worker: Worker) -> None:
        started = time.time()
        while not self._ripe(time.time() - started):
            self._look(calls, "the storm")
            time.sleep(LOOK)
        self.killed_at = worker.kill()
        self.ran = read_runs()
        cut = cut_runs(self.ran, self.killed_at)
        self.screen.note(f"the first worker is killed (SIGKILL), with the {len(cut)} jobs it runs", "bold")

    def _ripe(self, age: float) -> bool:
        """Whether to kill now: every process is in the middle of a run."""
        now = time.time()
        ages = [now - run.started for run in self.ran if run.ended is None]
        middle = len(ages) == PROCESSES and all(MIDDLE[0] < age < MIDDLE[1] for age in ages)
        return age > NO_LATER_THAN or (middle and age > KILL_AFTER)

    def _watch(self, calls: Storm, doing: str, until: Callable[[], bool]) -> bool:
        """Look until it is so; False if a duplicate was queued, or nothing has moved for long."""
        progress, moved_at = 0, time.monotonic()
        sweep = Sweep()
        while not until():
            self._look(calls, doing)
            sweep.if_due()
            now = len(self.asked) + len(self.ran) + sum(run.ended is not None for run in self.ran)
            if now != progress:
                progress, moved_at = now, time.monotonic()
            if self._is_stuck(time.monotonic() - moved_at) or any(accepted_twice(list(self.asked), self.ran)):
                return False
            time.sleep(LOOK)
        return True

    def _is_stuck(self, quiet: float) -> bool:
        """Whether what is missing after so many seconds without any progress is lost."""
        return quiet > PATIENCE or (quiet > HUSH and not self.world.messages())

    def _recovered(self) -> bool:
        """Whether what the kill cut off runs again."""
        every = Tally.of(self.asked, self.ran, self.killed_at)
        if every.recovered is not None:
            self.screen.note(f"the jobs of the killed worker run again after {every.recovered:.1f} s", "bold")
        return every.recovered is not None or not every.cut

    def _settled(self, calls: Storm) -> bool:
        """Whether all was asked, all has run, and no copy of a message is left that could still come."""
        return calls.over and finished(self.asked, self.ran) and not self.world.messages()

    def _look(self, calls: Storm, doing: str) -> None:
        calls.check()
        self.ran = read_runs()
        self.screen.show(self._tallies(), doing)

    def _tallies(self) -> dict[str, Tally]:
        asked = list(self.asked)
        return {name: Tally.of(asked, self.ran, self.killed_at, task) for task, name in KINDS.items()}
