"""Runs cells side by side: kills, probes with equal calls, waits for the end of it all, measures."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from celery import Celery
from django.conf import settings

from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.resolve import policy_of
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Holder, Record, Ref
from django_jobdedup.stores.redis.store import RedisStore
from tests.crash.broker import Broker
from tests.crash.cells import CONFIRM_WITHIN, LOST_WAIT, VISIBILITY, Cell
from tests.crash.finding import Finding
from tests.crash.following import FollowedJournal
from tests.crash.launcher import Launcher
from tests.crash.strikes import Plan, Planner, Struck
from tests.crash.tasks import TASKS
from tests.rig.environment import Environment, new_namespace
from tests.rig.process import alive
from tests.rig.redelivery import FAST_REDELIVERY, restore_lapsed
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

SIDE_BY_SIDE = 16
"""Cells at one time: most of them wait most of the time."""
POLL = 0.1
"""Seconds between two equal calls that probe whether a key is free."""
WITHOUT_WORKER = CONFIRM_WITHIN + 1.5
"""Seconds for which the message of a dead sender waits before a worker comes."""
NOTICED = 0.2
"""Seconds in which Redis has noticed that a connection was closed."""
RESCUERS, POOL = 10, 12
RETRIES = "retries"

CELERY = {
    "broker_transport_options": {
        **FAST_REDELIVERY,
        "visibility_timeout": VISIBILITY,
        # A worker killed during its sweep keeps kombu's mutex of sweeps that long.
        "unacked_mutex_expire": 2,
    },
    "worker_prefetch_multiplier": 1,
    "worker_lost_wait": LOST_WAIT,
    "result_backend_thread_safe": True,
}


@dataclass
class Laboratory:
    """One world with all its processes; ``run`` gives the finding of each cell, or its exception."""

    app: Celery
    environment: Environment
    launcher: Launcher
    rescuer: Worker
    shared: Worker
    planner: Planner
    journal: FollowedJournal
    broker: Broker

    def __post_init__(self) -> None:
        self._dispatching = threading.Lock()
        store = stores["default"]
        assert isinstance(store, RedisStore)
        self._store = store
        self._client = redis.Redis.from_url(self.environment.redis_url, decode_responses=True)
        for text in store.line.scripts.text.values():
            self._client.script_load(text)  # so that no first use needs two round trips
        self.offset = self._measure_offset()

    def _measure_offset(self) -> float:
        """The store's clock minus ours; the quickest of some answers is the truest."""
        samples = []
        for _ in range(50):
            before = time.monotonic()
            seconds, micros = self._client.time()
            after = time.monotonic()
            samples.append((after - before, seconds + micros / 1e6 - (before + after) / 2))
        return min(samples)[1]

    def run(self, cells: Iterable[Cell]) -> dict[Cell, Finding | Exception]:
        """Run cells side by side."""
        some, over = list(cells), threading.Event()
        sweeper = threading.Thread(target=self._sweep, args=(over,))
        sweeper.start()
        try:
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                return dict(zip(some, pool.map(self._try, enumerate(some)), strict=True))
        finally:
            over.set()
            sweeper.join()

    def _sweep(self, over: threading.Event) -> None:
        """Put lapsed deliveries back every second, as workers with kombu 5.7 do themselves."""
        while not over.wait(1.0):
            restore_lapsed(self.app)

    def _try(self, numbered: tuple[int, Cell]) -> Finding | Exception:
        number, cell = numbered
        try:
            return Trial(self, cell, f"{self.environment.namespace}-cell{number}").run()
        except Exception as error:
            error.add_note(cell.name)
            return error

    def dispatch(self, task: Any, key: str, **options: Any) -> Any:
        """Make one call."""
        with self._dispatching:
            return task.apply_async((key,), **options)

    def consume(self, worker: Worker, *queues: str) -> None:
        """Have a worker take messages from queues."""
        for queue in queues:
            self.app.control.add_consumer(queue, destination=[worker.name])

    def leave(self, worker: Worker, *queues: str) -> None:
        """Have a worker take no more."""
        for queue in queues:
            self.app.control.cancel_consumer(queue, destination=[worker.name])

    def inspect(self, ref: Ref, id: str = "") -> Record | None:
        """Ask the store for a record."""
        record = self._store.inspect(ref, id)
        assert record is None or isinstance(record, Record), record
        return record

    def events(self, ref: Ref) -> list[tuple[str, str]]:
        """What the store noted about one lock: (id, what)."""
        found = self._store.events(ref.shard, limit=10_000)
        assert isinstance(found, list), found
        return [(event.id, event.what) for event in found if event.ref == ref]

    def indexed(self, ref: Ref) -> bool:
        """Say whether the index of the shard still names a lock."""
        index = self._store.keys.shards[ref.shard].index
        return self._client.zscore(index, ref.fingerprint) is not None

    def result(self, id: str) -> str:
        """The state of a result as Celery stored it."""
        raw: Any = self._client.get(f"{self.environment.namespace}:celery-task-meta-{id}")
        return str(json.loads(raw)["status"]) if raw else "PENDING"

    def close(self) -> None:
        """Close the connections."""
        for owner in (self._client, self.planner, self.journal, self.broker):
            owner.close()


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


@contextlib.contextmanager
def laboratory(app: Celery, url: str, folder: Path) -> Iterator[Laboratory]:
    """Build the world, enter it, and take it down."""
    environment = Environment(
        new_namespace(), url, celery=CELERY, settings={"JOBDEDUP_CONFIRM_WITHIN": CONFIRM_WITHIN}
    )
    crashing = environment.having(settings={"INSTALLED_APPS": [*settings.INSTALLED_APPS, "tests.crash"]})
    with contextlib.ExitStack() as stack:
        stack.callback(environment.clean)
        stack.enter_context(environment.entered(app))
        launcher = stack.enter_context(Launcher(crashing, folder))
        rescuer = stack.enter_context(Worker(crashing, folder, concurrency=RESCUERS, queues=["rescue"]))
        shared = stack.enter_context(Worker(crashing, folder, concurrency=POOL, queues=["shared"]))
        lab = Laboratory(
            app,
            environment,
            launcher,
            rescuer.wait_until_ready(),
            shared.wait_until_ready(),
            Planner(url, environment.namespace),
            FollowedJournal(url, environment.namespace),
            Broker(url, environment.namespace),
        )
        stack.callback(lab.close)
        yield lab
