"""What was measured in one cell, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from django_jobdedup.lock_types.registry import LOCK_TYPES
from django_jobdedup.stores.record import Holder, Record
from tests.crash.broker import Place
from tests.crash.cells import CONFIRM_WITHIN, ENGINES, LOST_WAIT, Cell
from tests.rig.journal import Run

SLACK = 3.0
"""Seconds that polling, a busy machine and the start of a process may add to a deadline."""
EARLY = 0.15
"""Seconds by which two clocks may differ."""
SOON = 3.5
"""Seconds within which something counts as "at once"."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One cell, measured. Instants are ``time.monotonic()``.

    ``id`` is the job that was hit, ``next_id`` the first equal call accepted after the strike. ``holder`` is
    the job's seat just after the death, ``finished`` whether its end was on record by then, ``offset`` the
    store's clock minus ours, ``places`` where its messages were. ``events`` are what the store noted,
    ``result`` is the state of the job's result, ``left`` and ``indexed`` what the store knows at the end.
    """

    cell: Cell
    id: str
    struck: float
    holder: Holder | None
    finished: bool
    offset: float
    places: frozenset[Place]
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
        if holder is None or holder.state not in LOCK_TYPES[self.cell.lock].counts:
            return None
        if self.cell.store in ENGINES and holder.state in "PW":  # time does not free a call that is kept
            return None
        if holder.state == "P":
            return "after `CONFIRM_WITHIN`", holder.until - self.offset
        if holder.state == "R" and holder.until <= holder.lease:
            return "after the lease", holder.lease - self.offset
        return "after the TTL", holder.until - self.offset

    def words(self) -> str:
        """Say it in few words: the cell of the page."""
        parts = [self._work() + self._when(), f"next call {self.freed()}{self._waiting()}"]
        if self.two:
            parts.append("both run, one at a time" if self.cell.gated else "both run")
        seen = self._seen()
        return "; ".join([*parts, f"seen: {seen}"] if seen else parts)

    def freed(self) -> str:
        """Say when the next equal call was accepted, in a class of times.

        Raises AssertionError when it fits none: then it took longer than the protocol allows.
        """
        if self.cell.keeps and self.whole and self._within(self.over):
            return "after the TTL"
        ends = [run.ended for run in self.whole if run.ended is not None and run.ended > self.struck]
        if "R" not in LOCK_TYPES[self.cell.lock].counts:
            ends = []  # its end frees nothing
        if any(end - EARLY <= self.accepted <= end + SLACK for end in ends):
            return "when it has run"
        if self.deadline is not None and self.cell.side != "pool":
            name, at = self.deadline
            if self._within(at):
                return name
        starts = [run.started for run in self.again]
        if self.refused_by and any(start - EARLY <= self.accepted <= start + SLACK for start in starts):
            return "when it starts"
        after = self.accepted - self.struck
        if self.cell.side == "pool" and self.cell.point not in ("finish unread", "after finish"):
            assert after <= LOST_WAIT + 3 * SLACK, f"accepted {after:.2f} s after the strike"
            return "when Celery reports the loss"
        assert after <= SOON, f"accepted {after:.2f} s after the strike, for no reason: {self}"
        return "at once"

    def _within(self, at: float) -> bool:
        return at - EARLY <= self.accepted <= max(at, self.struck) + SLACK

    @property
    def over(self) -> float:
        """When the TTL of the job is over, counted from when it was due."""
        assert self.holder is not None
        return self.holder.due + self.holder.ttl - self.offset

    def _waiting(self) -> str:
        """Whether the next call, accepted beside a dead run, had to wait for its lease."""
        beside = self.cell.gated and self.cell.side == "worker" and self.accepted < self.lease
        waited = beside and self.next and self.next[0].started >= self.lease - EARLY
        return ", starts after the lease" if waited else ""

    @property
    def lease(self) -> float:
        """When the lease of the dead run lapsed, 0 without one."""
        return self.holder.lease - self.offset if self.holder is not None and self.ran else 0.0

    @property
    def ran(self) -> bool:
        """Whether the job ran when it was hit; by the time of the look a later run of it may be on."""
        holder = self.holder
        return holder is not None and holder.state == "R" and holder.since - self.offset < self.struck + 0.005

    @property
    def two(self) -> bool:
        """Whether the job still had a run before it when the next call was accepted."""
        return any(run.started > self.accepted for run in self.again)

    def _work(self) -> str:
        """What became of the job."""
        if self.cell.retries:
            return self._retried()
        cut, whole = len(self.own) - len(self.whole), len(self.whole)
        if not self.own:
            never = self.cell.side == "sender" and not self.places
            return "never queued" if never else "lost"
        if not self.again:
            return "has run" if whole else "cut off, lost"
        words = {(0, 1): "runs", (1, 1): "cut off, runs again", (0, 2): "has run, runs again"}
        word = words.get((cut, whole))
        assert word is not None, f"{cut} runs were cut off, {whole} were not: {self.runs}"
        return word

    def _retried(self) -> str:
        if not self.again:
            return "retry lost"
        bodies = [run.retries for run in self.again]
        assert bodies in ([1], [0, 1]), f"the body started again with retries {bodies}"
        return "retry runs" if bodies == [1] else "first attempt again, retry runs"

    def _when(self) -> str:
        """When the run after the strike started."""
        if not self.again:
            return ""
        after = self.again[0].started - self.struck
        if self.cell.countdown:
            assert after > SOON
            return " at its eta"
        if self.cell.side == "pool":
            waited = self.ran and self.again[0].started > self.lease - EARLY
            return " after the lease" if waited else " when Celery reports the loss"
        if self.ran and self.queued:
            assert self.again[0].started > self.lease - EARLY
            return " after the lease"
        if self.cell.side == "sender" and self.cell.waits and not self.places:
            assert after >= CONFIRM_WITHIN - EARLY, f"published by another after {after:.2f} s"
            return " after `CONFIRM_WITHIN`"
        if self.cell.ttl and not self.places and self.cell.side == "worker":
            assert self.again[0].started >= self.over - EARLY
            return " after the TTL"
        if self.places and not self.queued and self.cell.side == "worker":
            return " after the visibility timeout"
        return ""

    @property
    def queued(self) -> bool:
        """Whether a message waited in the queue at the death, so that no redelivery was needed."""
        return "queued" in self.places

    def _seen(self) -> str:
        # "withdrawn" tells how many calls were refused meanwhile: those were our own probes.
        parts = [f"event `{what}`" for what in self.events if what != "withdrawn"]
        if self.result not in ("SUCCESS", "") and self._work() != "never queued":
            parts.append(f"result `{self.result}`")
        return ", ".join(parts)
