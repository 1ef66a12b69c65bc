"""Where one cell is played: its key, its queues, its lock in its store; what both kinds of trial do."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.resolve import policy_of
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.record import Holder, Record, Ref
from tests.crash.broker import Place
from tests.crash.doomed import NOTICED, Doomed
from tests.crash.strikes import UNPUBLISHED, Plan, Struck
from tests.crash.tasks import TASKS
from tests.rig.process import alive
from tests.rig.waiting import wait_for

if TYPE_CHECKING:
    from tests.crash.cells import Cell
    from tests.crash.encounters import Encounter
    from tests.crash.laboratory import Laboratory

POLL = 0.3
"""Seconds between two looks, or two equal calls that probe whether a key is free."""
SECOND = "second"
RESCUE, SHARED = "rescue", "shared"
"""The queues of the workers that live on."""


class Scene:
    """One cell while it runs; ``doomed`` is the worker that dies for it, if that is not its own."""

    def __init__(self, lab: Laboratory, cell: Cell | Encounter, queue: str, doomed: Doomed | None) -> None:
        self.lab, self.cell, self.queue, self.doomed = lab, cell, queue, doomed
        self.key = cell.name
        self.queues = (queue, f"{queue}-{SECOND}")
        self.everywhere = (*self.queues, RESCUE, SHARED)
        self.task = TASKS[cell.lock, cell.ack]
        self.shelf, self.desk = lab.shelves[cell.store], lab.desks[cell.store]
        policy = policy_of(self.task.name, self.task.unique)
        assert isinstance(policy, Unique)
        identity = identify(policy, self.task.name, self.task, (self.key,), {}, queue)
        assert identity is not None
        self.ref = Ref(identity.shard, identity.fingerprint)

    def record(self, id: str = "") -> Record | None:
        """Ask the store for the record, with the marker of *id*."""
        return self.desk.do(self.shelf.inspect, self.ref, id)

    def holder(self, record: Record | None, id: str) -> Holder | None:
        """Give the seat of a job."""
        holders = record.holders if record is not None else ()
        return next((holder for holder in holders if holder.id == id), None)

    def state(self, id: str) -> str:
        """Give the state of a job's seat, empty without one."""
        holder = self.holder(self.record(), id)
        return holder.state if holder is not None else ""

    def is_over(self, record: Record | None) -> bool:
        """Whether nothing holds the lock any more but what is kept after its end."""
        if record is None:
            return True
        return not any(
            holder.state != "K" and (self.is_kept(holder) or max(holder.lease, holder.until) > record.now)
            for holder in record.holders
        )

    def is_kept(self, holder: Holder) -> bool:
        """Whether somebody will publish it: time does not free it."""
        return holder.state in "PW" and (self.shelf.durable or holder.args is not None)

    def wait_until_quiet(self, *ids: str, seconds: float = 45.0) -> None:
        """Wait until no message of the jobs exists anywhere and their lock is free."""
        quiet = 0
        for _ in range(int(seconds / POLL)):
            # Twice in a row: what moves from one place to another may be seen in neither.
            about = any(self.lab.broker.places(id, *self.everywhere) for id in ids)
            quiet = 0 if about else quiet + 1
            if quiet >= 2 and self.is_over(self.record()):
                return
            time.sleep(POLL)
        raise AssertionError(
            f"jobs {ids} are still about: {[self.lab.broker.places(id, *self.everywhere) for id in ids]}\n"
            f"{self.lab.journal.runs(self.key)}\n{self.record()}"
        )

    def wait_for_end(self, id: str) -> None:
        """Wait until a job's body has come to its end."""
        journal = self.lab.journal
        wait_for(
            lambda: any(run.id == id and run.ended for run in journal.runs(self.key)),
            40,
            every=POLL,
            what=lambda: (
                f"the end of {id}: {journal.runs(self.key)}\n{self.record()}\n"
                f"{self.lab.broker.places(id, *self.everywhere)}"
            ),
        )

    def places(self, id: str) -> frozenset[Place]:
        """Say where messages of a job were when its sender or its worker died."""
        if self.cell.side == "sender" and self.cell.point in UNPUBLISHED:
            return frozenset()
        return self.lab.broker.places(id, *self.everywhere)

    def send(self, options: dict[str, Any], plan: Plan) -> None:
        """Dispatch in a process of its own, until it is killed on its way; call it under ``lab.senders``."""
        words = {"task": self.task.name, "args": [self.key], "options": options}
        self.lab.zygote.order("send", **words, plan=asdict(plan))
        self.struck(name=plan.cell)

    def dispatch(self, **options: Any) -> Any:
        """Make one call."""
        return self.desk.do(self.task.apply_async, (self.key,), **options)

    def struck(self, worker: int | None = None, name: str = "") -> Struck:
        """Wait until the victim has come to its point; if it dies there, for its death (and *worker*'s)."""
        struck = wait_for(
            lambda: self.lab.planner.struck(name or self.cell.name),
            60,
            every=0.1,
            what=lambda: f"the strike {self.cell.point!r}\n{self.log()}",
        )
        assert struck is not None
        if self.cell.victim == "held":
            return struck
        for pid in filter(None, (struck.pid, worker)):
            wait_for(lambda pid=pid: not alive(pid), 5, what=f"the death of {pid}")
        # Redis would hand the next message to a dead worker whose connection it has not seen close.
        time.sleep(NOTICED)
        return struck

    def log(self) -> str:
        """What the worker has written that dies."""
        if self.doomed is not None:
            return self.doomed.log
        log = self.lab.zygote.log_of(self.queue)
        return log.read_text() if log.exists() else self.lab.zygote.log[-3000:]
