"""One cell while it runs: kill, probe, wait, measure."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django_jobdedup.outcomes import Outcome
from tests.crash.cells import CONFIRM_WITHIN, Cell
from tests.crash.doomed import Doomed
from tests.crash.finding import Finding
from tests.crash.scene import POLL, RESCUE, SHARED, Scene
from tests.crash.strikes import Plan, Struck
from tests.rig.waiting import wait_for

if TYPE_CHECKING:
    from tests.crash.laboratory import Laboratory

WITHOUT_WORKER = CONFIRM_WITHIN + 1.5
"""Seconds for which the message of a dead sender waits before a worker comes."""


class Trial(Scene):
    """One cell while it runs."""

    cell: Cell

    def __init__(self, lab: Laboratory, cell: Cell, queue: str, doomed: Doomed | None) -> None:
        super().__init__(lab, cell, queue, doomed)
        self.refused_by: set[str] = set()

    def run(self) -> Finding:
        """Kill, probe, wait, measure."""
        kill = {"sender": self._sender, "worker": self._worker, "pool": self._pool}[self.cell.side]
        struck, helper = kill()
        lab = self.lab
        places = self.places(struck.id)
        record = self.record(struck.id)
        holder = self.holder(record, struck.id)
        marker = record.marker if record is not None else None
        attached = self._attach(helper)
        next_id, accepted = self._probe(helper, attached)
        attached = attached or self._attach(helper, now=True)
        self.wait_for_end(next_id)
        self.wait_until_quiet(struck.id, next_id)
        lab.switch.leave(*self.queues)
        left = self.record()
        return Finding(
            cell=self.cell,
            id=struck.id,
            struck=struck.at,
            holder=holder,
            finished=marker is not None and marker.final,
            offset=self.shelf.offset,
            places=places,
            refused_by=frozenset(self.refused_by),
            next_id=next_id,
            accepted=accepted,
            runs=tuple(lab.journal.runs(self.key)),
            events=tuple(what for id, what in self.desk.do(self.shelf.events, self.ref) if id == struck.id),
            result=lab.result(struck.id),
            left=left,
            indexed=self.desk.do(self.shelf.indexed, self.ref),
        )

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"queue": self.queue}
        if self.cell.countdown:
            options["countdown"] = self.cell.countdown
        unique = {"store": self.cell.store, "ttl": self.cell.ttl, "lease": self.cell.lease}
        options["unique"] = {name: value for name, value in unique.items() if value}
        if self.cell.retries:
            options["kwargs"] = {"retry_to": self.queues[1]}
        return options

    def _plan(self) -> Plan:
        cell = self.cell
        return Plan(cell.name, cell.point, cell.victim, cell.once, cell.hold)

    # How the victim dies.

    def _sender(self) -> tuple[Struck, str]:
        if not self.cell.waits:
            self.lab.switch.lead(RESCUE, *self.queues)
        with self.lab.senders:
            self.send(self._options(), self._plan())
        return self.struck(), RESCUE

    def _worker(self) -> tuple[Struck, str]:
        id = self._dispatch_far() if self.cell.countdown else self._dispatch()
        self.lab.planner.plan(id, self._plan())
        if self.doomed is None:
            return self.struck(self.lab.zygote.work(self.queue).pid), RESCUE
        self.lab.broker.move({self.queue: self.doomed.queue})
        there = self.struck()
        return replace(there, at=self.doomed.kill(self)), RESCUE

    def _dispatch_far(self) -> str:
        """The sender dies before its confirm, so the receiving worker has to do it."""
        plan = Plan(f"{self.cell.name} sender", "before confirm", "process")
        with self.lab.senders:
            self.send(self._options(), plan)
        return self.struck(name=plan.cell).id

    def _dispatch(self) -> str:
        id = str(self.dispatch(**self._options()).id)
        if self.cell.lock != "while_executing":
            wait_for(lambda: self.state(id) == "W", 5, every=0.05, what="the confirm")
        return id

    def _pool(self) -> tuple[Struck, str]:
        id = self._dispatch()
        self.lab.planner.plan(id, self._plan())
        self.lab.switch.lead(SHARED, *self.queues)
        return self.struck(), SHARED

    # What happens then.

    def _attach(self, helper: str, *, now: bool = False) -> float:
        """Let a worker take what is left; gives the moment, 0 if it is too early for that."""
        if not now and self.cell.side == "sender" and self.cell.waits:
            return 0.0
        self.lab.switch.lead(helper, *self.queues)
        return time.monotonic()

    def _probe(self, helper: str, attached: float) -> tuple[str, float]:
        """Make equal calls until one is accepted; gives its id and the moment."""
        options = {**self._options(), "kwargs": {"seconds": self.cell.next}, "countdown": None}
        start = time.monotonic()
        while time.monotonic() - start < 30:
            result = self.dispatch(**options)
            if result.outcome is Outcome.ACCEPTED:
                return str(result.id), time.monotonic()
            assert result.outcome is Outcome.SUPPRESSED, result.outcome
            self.refused_by.add(str(result.id))
            if not attached and time.monotonic() - start > WITHOUT_WORKER:
                attached = self._attach(helper, now=True)
            time.sleep(POLL)
        raise AssertionError(f"no equal call was accepted within 30 s: {self.record()}")
