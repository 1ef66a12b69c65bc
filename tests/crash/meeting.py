"""One encounter while it runs: two equal calls meet, a process dies over it, and all is left to run out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.crash.cells import VISIBILITY
from tests.crash.doomed import Doomed
from tests.crash.encounters import FAR, Encounter
from tests.crash.met import Job, Met
from tests.crash.scene import POLL, RESCUE, Scene
from tests.crash.strikes import Plan, Struck
from tests.rig.waiting import wait_for

if TYPE_CHECKING:
    from tests.crash.laboratory import Laboratory

IN_LINE = VISIBILITY / 3 + 1.0
"""Seconds after which a start that was put off stands in the line of its lock no more: the worst case."""
OLDER, NEWER, NEXT = 1, 2, 3
"""The calls, in the order in which they are made."""


class Meeting(Scene):
    """One encounter while it runs."""

    cell: Encounter

    def __init__(self, lab: Laboratory, cell: Encounter, queue: str, doomed: Doomed | None) -> None:
        super().__init__(lab, cell, queue, doomed)
        self.called: dict[int, float] = {}

    def run(self) -> Met:
        """Have them meet, kill, wait, call once more, measure."""
        meet = {"sender": self._by_sender, "older": self._over_older, "newcomer": self._over_newcomer}
        older, newcomer, struck = meet[self.cell.dies]()
        lab, record = self.lab, self.record(newcomer)
        jobs = [
            Job(
                id=id,
                call=call,
                called=self.called[call],
                places=self.places(id) if call == NEWER else lab.broker.places(id, *self.everywhere),
                holder=self.holder(record, id),
            )
            for call, id in ((OLDER, older), (NEWER, newcomer))
        ]
        finished = record is not None and record.marker is not None and record.marker.final
        if self.cell.dies == "sender":
            wait_for(lambda: self._is_settled(newcomer), 20, every=POLL, what="the end of the pending time")
        self._let_go(older)
        self.wait_until_quiet(older, newcomer)
        next_id = self._dispatch(NEXT, self.queue)
        self.wait_for_end(next_id)
        self.wait_until_quiet(next_id)
        lab.switch.leave(*self.queues)
        events = tuple(self.desk.do(self.shelf.events, self.ref))
        dead = self.desk.do(self.shelf.dead, older, newcomer)
        return Met(
            cell=self.cell,
            struck=struck.at,
            offset=self.shelf.offset,
            older=replace(jobs[0], result=lab.result(older), dead=older in dead),
            newcomer=replace(jobs[1], result=lab.result(newcomer), dead=newcomer in dead),
            finished=finished,
            next_id=next_id,
            runs=tuple(lab.journal.runs(self.key)),
            events=events,
            left=self.record(),
            indexed=self.desk.do(self.shelf.indexed, self.ref),
        )

    # How they meet.

    def _by_sender(self) -> tuple[str, str, Struck]:
        """The sender of the newcomer dies."""
        far = FAR if self.cell.older == "is due later" else None
        later = FAR if self.cell.older == "is due sooner" else None
        with self.lab.senders:
            older = self._call_older(countdown=far)
            if self.cell.older == "runs":
                self.lab.switch.lead(RESCUE, self.queue)
                self._wait_for_start(older)
            self.called[NEWER] = time.monotonic()
            self.send(self._options(NEWER, self.queues[1], countdown=later), self._plan())
        struck = self.struck()
        self.lab.planner.go_on(self.key)
        return older, struck.id, struck

    def _over_older(self) -> tuple[str, str, Struck]:
        """The worker that runs the older job dies, and the newcomer has joined it or waits beside it."""
        assert self.doomed is not None
        older = self._call_older(meets=not self.cell.joined)
        newcomer = self._dispatch(NEWER, self.queues[1]) if self.cell.joined else ""
        if not self.cell.wakes:
            self.lab.planner.plan(older, self._plan())
        self.lab.broker.move({self.queue: self.doomed.queue})
        if not newcomer:
            self._wait_for_start(older)
            newcomer = self._dispatch(NEWER, self.queues[1])
        if self.cell.wakes:
            self.lab.planner.plan(newcomer, self._plan())
        self.lab.planner.go_on(self.key)
        return older, newcomer, replace(self.struck(), at=self.doomed.kill(self))

    def _over_newcomer(self) -> tuple[str, str, Struck]:
        """The worker dies that is about to start the newcomer while the older job runs elsewhere."""
        assert self.doomed is not None
        older = self._call_older()
        self.lab.switch.lead(RESCUE, self.queue)
        self._wait_for_start(older)
        newcomer = self._dispatch(NEWER, self.queues[1])
        self.lab.planner.plan(newcomer, self._plan())
        self.lab.broker.move({self.queues[1]: self.doomed.queue})
        struck = replace(self.struck(), at=self.doomed.kill(self))
        if self.cell.point == "before publish":
            time.sleep(IN_LINE)
        self.lab.planner.go_on(self.key)
        return older, newcomer, struck

    def _call_older(self, **options: Any) -> str:
        meets = self.cell.older == "runs"
        older = self._dispatch(OLDER, self.queue, **{"meets": meets, **options})
        if self.cell.lock != "while_executing":
            wait_for(lambda: self.state(older) == "W", 5, every=0.1, what="the confirm")
        return older

    def _wait_for_start(self, id: str) -> None:
        wait_for(self._starts(id), 15, every=0.1, what=lambda: f"the start of {id}\n{self.log()}")

    def _starts(self, id: str) -> Any:
        return lambda: any(run.id == id for run in self.lab.journal.runs(self.key))

    def _dispatch(self, call: int, queue: str, **options: Any) -> str:
        self.called[call] = time.monotonic()
        return str(self.dispatch(**self._options(call, queue, **options)).id)

    def _options(
        self, call: int, queue: str, *, meets: bool = False, countdown: float | None = None
    ) -> dict[str, Any]:
        kwargs = {"call": call, "meets": meets}
        return {"queue": queue, "countdown": countdown, "kwargs": kwargs, "unique": self.cell.unique}

    def _plan(self) -> Plan:
        return Plan(self.cell.name, self.cell.point, self.cell.victim, self.cell.once)

    # What happens then.

    def _is_settled(self, id: str) -> bool:
        """Whether a half-finished dispatch is out of the way: confirmed, lapsed or sent by another."""
        holder = self.holder(self.record(), id)
        if holder is None:
            return True
        # Between the hands of a relay and its confirm the older job has not given way yet.
        pending = holder.state == "P" or bool(holder.over)
        return not pending and bool(self.lab.broker.places(id, *self.everywhere))

    def _let_go(self, older: str) -> None:
        """Let a worker take what is left, the older job first."""
        self.lab.switch.lead(RESCUE, self.queue)
        if self.cell.dies == "sender" and self.cell.older == "waits":
            # Which of two comes first to its claim must not be up to a race of threads.
            for _ in range(int(5 / POLL)):
                if self._starts(older)() or not self.lab.broker.places(older, *self.everywhere):
                    break
                time.sleep(POLL)
        self.lab.switch.lead(RESCUE, *self.queues)
