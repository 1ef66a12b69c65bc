"""What came of one ending, and the words for it: the cell of the page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from celery.result import AsyncResult

from tests.rig.journal import Run

from .jobs import LEASE, LOST_WAIT, VISIBILITY
from .rows import Cell

SLACK = 2.5
"""Seconds within which something happens at once, on a busy machine."""
SOONEST = LEASE * 2 / 3 - 0.5
"""Seconds after which a lease may lapse at the earliest: its last renewal was a third of it ago."""
CUT = (None, "SystemExit", "GreenletExit", "Timeout")
"""How bodies end that are not let finish."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one ending.

    ``begun``: when it was brought about; ``refused``: when an equal call was refused last (0: never);
    ``accepted``: when the next one was accepted. ``events``: what the store noted of the job as out of the
    ordinary.
    """

    cell: Cell
    first: AsyncResult
    second: AsyncResult
    runs: list[Run]
    begun: float
    refused: float
    accepted: float
    state: str = ""
    events: tuple[str, ...] = ()

    @property
    def own(self) -> list[Run]:
        """The starts of the job that ends."""
        return [run for run in self.runs if run.id == self.first.id]

    @property
    def next(self) -> list[Run]:
        """The starts of the call after it."""
        return [run for run in self.runs if run.id == self.second.id]

    @property
    def overlaps(self) -> list[tuple[Run, Run]]:
        """Pairs of runs alive at one moment."""
        return [(a, b) for a, b in combinations(self.runs, 2) if a.overlaps(b)]

    @property
    def ended(self) -> float:
        """When the job gave its last sign of life; for one that never ran, when it was struck."""
        return max((run.seen for run in self.own), default=self.begun)

    @property
    def held(self) -> float:
        """How long after its end its key was seen to be held, in seconds: at least so long."""
        return self.refused - self.ended

    @property
    def lost(self) -> bool:
        """Whether what ran its body is gone, and nobody ran it again."""
        return self.cell.row.loses and self.own[-1].ended is None

    def words(self) -> str:
        """Say it in few words."""
        parts = [self._work(), f"`{self.state}`", f"next call {self.freed()}"]
        return "; ".join(parts)

    def freed(self) -> str:
        """Say when the next call was accepted; raises AssertionError when the key was held for too long.

        Only a refusal counts against it: on a busy machine the test itself may come late.
        """
        longest, words = self.cell.row.waits
        if self.lost and self.cell.row.strike:
            longest, words = LEASE, "after the lease"
            assert self.accepted - self.ended > SOONEST, f"accepted during its lease: {self}"
        elif self.lost:
            longest, words = LOST_WAIT, "when Celery reports the loss"
        assert self.held < longest + SLACK, f"refused {self.held:.2f} s after the end: {self}"
        assert self.accepted >= self.ended, f"accepted {self.ended - self.accepted:.2f} s too early: {self}"
        return words

    def _work(self) -> str:
        """What its bodies did, and after what time again."""
        words = []
        for before, run in zip([None, *self.own], self.own, strict=False):
            word = "is cut off" if run.how in CUT else "runs"
            words.append(word if before is None else f"{word} again{self._pause(before, run)}")
        return ", ".join(words) or "does not run"

    def _pause(self, before: Run, run: Run) -> str:
        """What a run has waited for after the one before it."""
        pause = run.started - before.seen
        if before.how in CUT and run.redelivered and pause > VISIBILITY - SLACK:
            return " after the visibility timeout"
        if before.ended is None and self.cell.row.loses:
            assert pause > SOONEST, f"started during the lease of a lost one: {self}"
            return " after the lease"
        return ""
