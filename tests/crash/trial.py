"""One cell while it runs: kill, probe, wait, measure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.resolve import policy_of
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.record import Holder, Record, Ref
from tests.crash.cells import CONFIRM_WITHIN, Cell
from tests.crash.finding import Finding
from tests.crash.strikes import Plan, Struck
from tests.crash.tasks import TASKS
from tests.rig.process import alive
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

if TYPE_CHECKING:
    from tests.crash.laboratory import Laboratory

POLL = 0.1
"""Seconds between two equal calls that probe whether a key is free."""
WITHOUT_WORKER = CONFIRM_WITHIN + 1.5
"""Seconds for which the message of a dead sender waits before a worker comes."""
NOTICED = 0.2
"""Seconds in which Redis has noticed that a connection was closed."""
RETRIES = "retries"


class Trial:
    """One cell while it runs."""

    def __init__(self, lab: Laboratory, cell: Cell, queue: str) -> None:
        self.lab, self.cell, self.queue = lab, cell, queue
        self.key = cell.name
        self.queues = (queue, f"{queue}-{RETRIES}")
        self.task = TASKS[cell.lock, cell.ack]
        policy = policy_of(self.task.name, self.task.unique)
        assert isinstance(policy, Unique)
        identity = identify(policy, self.task.name, self.task, (self.key,), {}, queue)
        assert identity is not None
        self.ref = Ref(identity.shard, identity.fingerprint)
        self.refused_by: set[str] = set()

    def run(self) -> Finding:
        """Kill, probe, wait, measure."""
        kill = {"sender": self._sender, "worker": self._worker, "pool": self._pool}[self.cell.side]
        struck, helper = kill()
        places = self.lab.broker.places(struck.id, *self.queues)
        record = self.lab.inspect(self.ref, struck.id)
        holder = self._holder(record, struck.id)
        marker = record.marker if record is not None else None
        attached = self._attach(helper)
        next_id, accepted = self._probe(helper, attached)
        attached = attached or self._attach(helper, now=True)
        self._wait_for_the_end(struck.id, next_id)
        self.lab.leave(helper, *self.queues)
        return Finding(
            cell=self.cell,
            id=struck.id,
            struck=struck.at,
            holder=holder,
            finished=marker is not None and marker.final,
            offset=self.lab.offset,
            places=places,
            refused_by=frozenset(self.refused_by),
            next_id=next_id,
            accepted=accepted,
            runs=tuple(self.lab.journal.runs(self.key)),
            events=tuple(what for id, what in self.lab.events(self.ref) if id == struck.id),
            result=self.lab.result(struck.id),
            left=self.lab.inspect(self.ref),
            indexed=self.lab.indexed(self.ref),
        )

    def _holder(self, record: Record | None, id: str) -> Holder | None:
        holders = record.holders if record is not None else ()
        return next((holder for holder in holders if holder.id == id), None)

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"queue": self.queue}
        if self.cell.countdown:
            options["countdown"] = self.cell.countdown
        if self.cell.ttl:
            options["unique"] = {"ttl": self.cell.ttl}
        if self.cell.retries:
            options["kwargs"] = {"retry_to": self.queues[1]}
        return options

    def _plan(self) -> Plan:
        cell = self.cell
        return Plan(cell.name, cell.point, cell.victim, cell.once, cell.hold)

    # How the victim dies.

    def _sender(self) -> tuple[Struck, Worker]:
        if not self.cell.waits:
            self.lab.consume(self.lab.rescuer, *self.queues)
        self._send(self._plan())
        return self._struck(), self.lab.rescuer

    def _send(self, plan: Plan) -> None:
        self.lab.launcher.send(self.task.name, [self.key], self._options(), plan)

    def _worker(self) -> tuple[Struck, Worker]:
        id = self._dispatch_far() if self.cell.countdown else self._dispatch()
        self.lab.planner.plan(id, self._plan())
        pid = self.lab.launcher.work(self.queue)
        struck = self._struck(pid)
        return struck, self.lab.rescuer

    def _dispatch_far(self) -> str:
        """The sender dies before its confirm, so the receiving worker has to do it."""
        self._send(Plan(f"{self.cell.name} sender", "before confirm"))
        struck = self.lab.planner.struck(f"{self.cell.name} sender")
        assert struck is not None
        return struck.id

    def _dispatch(self) -> str:
        id = str(self.lab.dispatch(self.task, self.key, **self._options()).id)
        if self.cell.lock != "while_executing":
            wait_for(lambda: self._state(id) == "W", 5, what="the confirm")
        return id

    def _state(self, id: str) -> str:
        holder = self._holder(self.lab.inspect(self.ref), id)
        return holder.state if holder is not None else ""

    def _pool(self) -> tuple[Struck, Worker]:
        id = self._dispatch()
        self.lab.planner.plan(id, self._plan())
        self.lab.consume(self.lab.shared, *self.queues)
        return self._struck(), self.lab.shared

    def _struck(self, worker: int | None = None) -> Struck:
        """Wait for the strike and for the death of the process (and of *worker*)."""
        log = self.lab.launcher.log(self.queue)
        struck = wait_for(
            lambda: self.lab.planner.struck(self.cell.name),
            20,
            every=0.05,
            what=lambda: f"the strike {self.cell.point!r}\n{log.read_text() if log.exists() else ''}",
        )
        assert struck is not None
        for pid in filter(None, (struck.pid, worker)):
            wait_for(lambda pid=pid: not alive(pid), 5, what=f"the death of {pid}")
        # Redis would hand the next message to a dead worker whose connection it has not seen close.
        time.sleep(NOTICED)
        return struck

    # What happens then.

    def _attach(self, helper: Worker, *, now: bool = False) -> float:
        """Let a worker take what is left; gives the moment, 0 if it is too early for that."""
        if not now and self.cell.side == "sender" and self.cell.waits:
            return 0.0
        if self.cell.side != "pool":
            self.lab.consume(helper, *self.queues)
        return time.monotonic()

    def _probe(self, helper: Worker, attached: float) -> tuple[str, float]:
        """Make equal calls until one is accepted; gives its id and the moment."""
        options: dict[str, Any] = {"queue": self.queue, "kwargs": {"seconds": self.cell.next}}
        start = time.monotonic()
        while time.monotonic() - start < 30:
            result = self.lab.dispatch(self.task, self.key, **options)
            if result.outcome is Outcome.ACCEPTED:
                return str(result.id), time.monotonic()
            assert result.outcome is Outcome.SUPPRESSED, result.outcome
            self.refused_by.add(str(result.id))
            if not attached and time.monotonic() - start > WITHOUT_WORKER:
                attached = self._attach(helper, now=True)
            time.sleep(POLL)
        raise AssertionError(f"no equal call was accepted within 30 s: {self.lab.inspect(self.ref)}")

    def _wait_for_the_end(self, *ids: str) -> None:
        """Wait until the next call has run and no message of the two jobs exists anywhere."""
        lab = self.lab
        wait_for(
            lambda: any(run.id == ids[1] and run.ended for run in lab.journal.runs(self.key)),
            25,
            every=POLL,
            what=lambda: (
                f"the run of the next call, {ids}: {lab.journal.runs(self.key)}\n"
                f"{lab.inspect(self.ref)} {lab.broker.places(ids[1], *self.queues)}"
            ),
        )
        quiet = 0
        for _ in range(250):
            # Twice in a row: what moves from one place to another may be seen in neither.
            quiet = 0 if any(lab.broker.places(id, *self.queues) for id in ids) else quiet + 1
            if quiet >= 2 and not self._runs():
                return
            time.sleep(POLL)
        raise AssertionError(
            f"messages of {ids} are still about: {[lab.broker.places(id, *self.queues) for id in ids]}\n"
            f"{lab.journal.runs(self.key)}\n{lab.inspect(self.ref)}"
        )

    def _runs(self) -> bool:
        record = self.lab.inspect(self.ref)
        holders = record.holders if record is not None else ()
        return any(holder.state == "R" and holder.lease > record.now for holder in holders if record)
