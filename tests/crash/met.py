"""What was measured in one encounter, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from django_jobdedup.stores.record import Holder, Record
from tests.crash.broker import Place
from tests.crash.cells import CONFIRM_WITHIN
from tests.crash.encounters import Encounter
from tests.crash.finding import EARLY, SOON
from tests.rig.journal import Run

REFUSED = ("skip", "log", "raise", "keep_soonest")
"""Strategies under which a refused call leaves nothing to be done."""
DROPPING = ("skip", "log")
"""Strategies under which a start that meets a run needs no run of its own."""
UNSAID = ("withdrawn", "superseded", "removed")
"""Events that tell nothing which the rest of the words does not."""


@dataclass(frozen=True, slots=True)
class Job:
    """One of the two calls. ``called`` is ``time.monotonic()``; ``call`` its number, in the order of calls.

    ``places`` are where its messages were just after the death, ``holder`` its seat then; ``result`` and
    ``dead`` are of the end.
    """

    id: str
    call: int
    called: float
    places: frozenset[Place]
    holder: Holder | None
    result: str = ""
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Met:
    """One encounter, measured; see ``Finding``. ``finished``: the end of the newcomer was on record."""

    cell: Encounter
    struck: float
    offset: float
    older: Job
    newcomer: Job
    finished: bool
    next_id: str
    runs: tuple[Run, ...]
    events: tuple[tuple[str, str], ...]
    left: Record | None
    indexed: bool

    @property
    def overlaps(self) -> list[tuple[Run, Run]]:
        """Pairs of runs alive at one moment."""
        return [(a, b) for a, b in combinations(self.runs, 2) if a.overlaps(b)]

    @property
    def next(self) -> list[Run]:
        """The starts of the call that was made when all was over."""
        return self.of(self.next_id)

    def of(self, id: str) -> list[Run]:
        """The starts of one job."""
        return [run for run in self.runs if run.id == id]

    def again(self, job: Job) -> list[Run]:
        """Its starts after the strike."""
        return [run for run in self.of(job.id) if run.started > self.struck]

    @property
    def joined(self) -> bool:
        """Whether the newcomer has no message of its own: its arguments are with the older job."""
        return self.newcomer.id == self.older.id or (
            self.older.holder is not None and self.older.holder.merged > 0
        )

    def accepted(self, job: Job) -> bool:
        """Whether a call was taken: a message exists, a run, or it is with another job."""
        if job is self.newcomer and self.joined:
            return True
        return bool(job.places or self.of(job.id)) or self.cell.dies != "sender"

    def covered(self, job: Job) -> bool:
        """Whether a whole run started after the call, with its arguments or newer ones."""
        return any(
            run.how == "returned" and run.note >= job.call and run.started >= job.called - EARLY
            for run in self.runs
            if run.id != self.next_id
        )

    def seen(self, job: Job) -> bool:
        """Whether a person can see that it was lost, or its caller was told."""
        noted = any(id == job.id and what not in UNSAID for id, what in self.events)
        return noted or job.dead or job.result in ("FAILURE", "SUCCESS")

    def words(self) -> str:
        """Say it in few words: the cell of the page."""
        parts = [f"older {self._fate(self.older)}"]
        if self.newcomer.id != self.older.id:
            parts.append(f"newcomer {self._fate(self.newcomer)}")
        seen = [text for name in ("older", "newcomer") if (text := self._notes(name))]
        return "; ".join([*parts, f"seen: {', '.join(seen)}"] if seen else parts)

    def _fate(self, job: Job) -> str:
        own = self.of(job.id)
        if not own:
            return self._unrun(job)
        whole = [run for run in own if run.how == "returned"]
        again = self.again(job)
        text = {(1, 0): "cut off, lost", (0, 1): "runs", (1, 1): "cut off, runs again"}.get(
            (len(own) - len(whole), len(whole))
        )
        if len(whole) == 2 and len(own) == 2:
            text = "has run, runs again"
        elif not again and whole and self.cell.dies == "older":
            text = "has run"
        assert text is not None, f"{own}"
        newest = any(run.note > job.call for run in whole)
        return text + self._when(job, again) + (" with the newest arguments" if newest else "")

    def _unrun(self, job: Job) -> str:
        """What became of a job without a start."""
        if job.dead:
            return "is on the list of the dead"
        if (job.id, "superseded") in self.events:
            return "gives way"
        if job is self.newcomer and self.joined:
            return "has joined"
        if self.cell.dies == "sender" and not job.places and job is self.newcomer:
            return "refused" if self.cell.strategy in REFUSED and self._refused() else "never queued"
        if job.result == "SUCCESS":
            return "ends without a run"
        return "dropped" if job is self.newcomer and self.cell.strategy in DROPPING else "lost"

    def _refused(self) -> bool:
        return self.older.holder is not None and self.older.holder.refused > 0

    def _when(self, job: Job, again: list[Run]) -> str:
        """When it starts after the strike, where something had to come first."""
        if not again or (job is self.older and self.cell.older == "waits"):
            return ""
        start, after = again[0].started, again[0].started - self.struck
        if job is self.older and self.cell.older == "is due later":
            return " at its eta"
        if not job.places or (self.cell.ttl and self._is_redelivered(job)):
            if self.cell.ttl and job.holder is not None:
                assert start >= job.holder.due + job.holder.ttl - self.offset - EARLY
                return " after the TTL"
            assert after >= CONFIRM_WITHIN - SOON, f"published by another {after:.2f} s after the strike"
            return " after `CONFIRM_WITHIN`"
        if self._is_redelivered(job):
            return " after the visibility timeout"
        ran = self.older.holder
        if job is self.newcomer and self.cell.dies == "older" and ran is not None and ran.state == "R":
            assert start >= ran.lease - self.offset - EARLY
            return " after the lease"
        return ""

    def _is_redelivered(self, job: Job) -> bool:
        """Whether the only message was in the dead worker's hands, however long the others made it wait."""
        if self.cell.dies == "older":
            return job is self.older
        return self.cell.dies == "newcomer" and job is self.newcomer and self.cell.point != "after publish"

    def _notes(self, name: str) -> str:
        """What a person can see of one job, beside its runs."""
        job: Job = getattr(self, name)
        if job is self.newcomer and (job.id == self.older.id or not (self.accepted(job) or job.dead)):
            noted = [f"event `{what}`" for id, what in self.events if id == job.id and what not in UNSAID]
            return f"{name}: {', '.join(noted)}" if noted and job.id != self.older.id else ""
        parts = [f"event `{what}`" for id, what in self.events if id == job.id and what not in UNSAID]
        joined = job is self.newcomer and self.joined
        if job.result != "SUCCESS" and not joined and (job.result != "PENDING" or not job.dead):
            parts.append(f"result `{job.result}`")
        if job.dead and self.of(job.id):
            parts.append("on the list of the dead")
        return f"{name}: {', '.join(parts)}" if parts else ""
