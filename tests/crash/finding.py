"""What was measured in one cell, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from django_jobdedup.stores.record import Holder, Record
from tests.crash.broker import Place
from tests.crash.cells import Cell
from tests.rig.journal import Run

SLACK = 1.0
"""Seconds that polling, a busy machine and the start of a process may add to a deadline."""
EARLY = 0.15
"""Seconds by which two clocks may differ."""
SOON = 1.5
"""Seconds within which something counts as "at once"."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One cell, measured. Instants are ``time.monotonic()``.

    ``id`` is the job that was hit, ``next_id`` the first equal call accepted after the strike. ``holder`` is the
    job's seat just after the death, ``offset`` the store's clock minus ours, ``place`` where the message was then.
    ``attached`` is when a worker could take the messages that the dead left. ``events`` are what the store noted,
    ``result`` the state of the job's result, ``left`` and ``indexed`` what the store still knows at the very end.
    """

    cell: Cell
    id: str
    struck: float
    holder: Holder | None
    finished: bool
    offset: float
    place: Place
    attached: float
    refused_by: frozenset[str]
    next_id: str
    accepted: float
    runs: tuple[Run, ...]
    events: tuple[str, ...]
    result: str
    left: Record | None
    indexed: bool

    @property
    def own(self) -> list[Run]:
        """The starts of the job that was hit."""
        return [run for run in self.runs if run.id == self.id]

    @property
    def whole(self) -> list[Run]:
        """Those that came to the end of their body."""
        return [run for run in self.own if run.how == "returned"]

    @property
    def next(self) -> list[Run]:
        """The starts of the next equal call."""
        return [run for run in self.runs if run.id == self.next_id]

    @property
    def again(self) -> list[Run]:
        """The job's starts after the strike."""
        return [run for run in self.own if run.started > self.struck]

    @property
    def overlaps(self) -> list[tuple[Run, Run]]:
        """Pairs of runs alive at one moment."""
        return [(a, b) for a, b in combinations(self.runs, 2) if a.overlaps(b)]

    @property
    def deadline(self) -> tuple[str, float] | None:
        """What frees the dead one's seat if nobody comes back, and when."""
        holder = self.holder
        if holder is None:
            return None
        if holder.state == "P":
            return "after `CONFIRM_WITHIN`", holder.until - self.offset
        if holder.state == "R" and holder.until <= holder.lease:
            return "after the lease", holder.lease - self.offset
        return "after the TTL", holder.until - self.offset

    def words(self) -> str:
        """Say it in few words: the cell of the page."""
        parts = [self._work(), f"key free {self.freed()}"]
        seen = self._seen()
        return "; ".join([*parts, f"seen: {seen}"] if seen else parts)

    def freed(self) -> str:
        """Say when the next equal call was accepted, in a class of times.

        Raises AssertionError when it fits none: then it took longer than the protocol allows.
        """
        ends = [run.ended for run in self.whole if run.ended is not None and run.ended > self.struck]
        if any(end - EARLY <= self.accepted <= end + SLACK for end in ends):
            return "when it has run"
        deadline = self.deadline
        if deadline is not None and deadline[1] - EARLY <= self.accepted <= deadline[1] + SLACK:
            return deadline[0]
        starts = [run.started for run in self.again]
        if any(start - EARLY <= self.accepted <= start + SLACK for start in starts):
            return "when it starts"
        after = self.accepted - self.struck
        assert after <= SOON, f"accepted {after:.2f} s after the strike, for no reason: {self}"
        return "at once"

    def _work(self) -> str:
        """What became of the job."""
        cut, whole = len(self.own) - len(self.whole), len(self.whole)
        if self.cell.retries:
            return self._retried()
        if not self.own:
            return "lost" if self.place or self.finished or self.cell.side != "sender" else "never queued"
        if not self.again:
            return "has run" if whole else "cut off, lost"
        word = {(0, 1): "runs", (1, 1): "cut off, runs again", (0, 2): "runs twice"}.get((cut, whole))
        assert word is not None, f"{cut} runs were cut off, {whole} were not: {self.runs}"
        return word + self._when()

    def _retried(self) -> str:
        first = [run for run in self.own if run.started < self.struck]
        if not self.again:
            return "retry lost" if first else "lost"
        bodies = [run.retries for run in self.again]
        assert bodies in ([1], [0, 1]), f"the body started again with retries {bodies}"
        return ("retry runs" if bodies == [1] else "first attempt and retry run") + self._when()

    def _when(self) -> str:
        """When the run after the strike started, counted from the moment at which a worker could."""
        start = self.again[0].started
        late = "both run, this one after the next" if self._after_next(start) else ""
        if self.place == "unacked" and start - self.struck > SOON:
            when = " after the visibility timeout"
        elif start - max(self.struck, self.attached) <= SOON or late:
            when = ""
        else:
            when = " after the lease"
        if self.cell.countdown and when:
            when = " at its eta"
        return when + (f" ({late})" if late else "")

    def _after_next(self, start: float) -> bool:
        return any(run.started < start for run in self.next)

    def _seen(self) -> str:
        parts = [f"event `{what}`" for what in self.events]
        if self.result not in ("SUCCESS", "") and self._work() != "never queued":
            parts.append(f"result `{self.result}`")
        return ", ".join(parts)
