"""Runs cells side by side: kills, calls, waits for the end of it all, measures."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from celery import Celery
from django.conf import settings

from tests.crash.broker import Broker, Switch
from tests.crash.cells import CONFIRM_WITHIN, LOST_WAIT, SQLITE, UNATTENDED, VISIBILITY, Cell
from tests.crash.desk import Desk
from tests.crash.doomed import Doomed
from tests.crash.encounters import Encounter
from tests.crash.finding import Finding
from tests.crash.following import FollowedJournal
from tests.crash.meeting import Meeting
from tests.crash.met import Met
from tests.crash.shelves import Shelf, settings_of
from tests.crash.strikes import Planner
from tests.crash.trial import Trial
from tests.rig.engines import Engine
from tests.rig.environment import Environment, new_namespace
from tests.rig.forking import Zygote
from tests.rig.redelivery import FAST_REDELIVERY, restore_lapsed
from tests.rig.worker import Worker

SIDE_BY_SIDE = 64
"""Cells at one time: most of them wait most of the time."""
TOGETHER = 8
"""Cells for which one worker dies."""
WEIGHT = 8
"""For how many others a cell counts that has a worker of its own: its start is what costs."""
SENDERS = 4
"""Senders at one time: a crowd of them would not come from one step to the next within the pending time."""
RESCUERS, POOL = 80, 12

AnyCell = Cell | Encounter
AnyFinding = Finding | Met

CELERY = {
    "broker_transport_options": {
        **FAST_REDELIVERY,
        "visibility_timeout": VISIBILITY,
        # A worker killed during its sweep keeps kombu's mutex of sweeps that long.
        "unacked_mutex_expire": 2,
        "priority_steps": [0],
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
    zygote: Zygote
    desks: Mapping[str, Desk]
    shelves: Mapping[str, Shelf]
    planner: Planner
    journal: FollowedJournal
    broker: Broker
    switch: Switch
    client: redis.Redis

    def __post_init__(self) -> None:
        self.senders = threading.Semaphore(SENDERS)

    def run(self, cells: Iterable[AnyCell]) -> dict[AnyCell, AnyFinding | Exception]:
        """Run cells side by side."""
        over = threading.Event()
        sweeper = threading.Thread(target=self._sweep, args=(over,))
        sweeper.start()
        free = threading.Semaphore(SIDE_BY_SIDE)
        found: dict[AnyCell, Future[AnyFinding | Exception]] = {}
        try:
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                for number, some in enumerate(_together(cells)):
                    weight = WEIGHT if _has_a_worker(some[0]) else 1
                    for _ in range(weight * len(some)):
                        free.acquire()
                    doomed = self._doomed(number, some)
                    for place, cell in enumerate(some):
                        queue = f"{self.environment.namespace}-cell{number}-{place}"
                        found[cell] = pool.submit(self._try, cell, queue, doomed)
                        found[cell].add_done_callback(lambda _, weight=weight: free.release(weight))
            return {cell: future.result() for cell, future in found.items()}
        finally:
            over.set()
            sweeper.join()

    def _doomed(self, number: int, some: Sequence[AnyCell]) -> Doomed | None:
        if some[0].victim != "held":
            return None
        return Doomed(self.zygote, f"{self.environment.namespace}-doomed{number}", len(some))

    def _sweep(self, over: threading.Event) -> None:
        """Put lapsed deliveries back every second, as workers with kombu 5.7 do themselves."""
        while not over.wait(1.0):
            restore_lapsed(self.app)

    def _try(self, cell: AnyCell, queue: str, doomed: Doomed | None) -> AnyFinding | Exception:
        try:
            return self._played(cell, queue, doomed)
        except Exception as error:
            error.add_note(cell.name)
            return error

    def _played(self, cell: AnyCell, queue: str, doomed: Doomed | None) -> AnyFinding:
        scene = (
            Meeting(self, cell, queue, doomed)
            if isinstance(cell, Encounter)
            else Trial(self, cell, queue, doomed)
        )
        try:
            return scene.run()
        except Exception:
            if doomed is not None:
                doomed.give_up(scene)
            raise

    def result(self, id: str) -> str:
        """The state of a result as Celery stored it."""
        raw: Any = self.client.get(f"{self.environment.namespace}:celery-task-meta-{id}")
        return str(json.loads(raw)["status"]) if raw else "PENDING"


def _has_a_worker(cell: AnyCell) -> bool:
    """Whether a worker is started for this cell alone."""
    return cell.side == "worker" and cell.victim == "worker"


def _together(cells: Iterable[AnyCell]) -> Iterator[list[AnyCell]]:
    """Give cells for which one worker dies together, and first: they take longest."""
    some = list(cells)
    held = [cell for cell in some if cell.victim == "held"]
    for start in range(0, len(held), TOGETHER):
        yield held[start : start + TOGETHER]
    for cell in some:
        if cell.victim != "held":
            yield [cell]


@contextlib.contextmanager
def laboratory(app: Celery, url: str, folder: Path, engines: Mapping[str, Engine]) -> Iterator[Laboratory]:
    """Build the world with the database stores of *engines*, SQLite among them, enter it, take it down."""
    grave = engines[SQLITE]
    configured = {**settings_of(engines), "JOBDEDUP_CONFIRM_WITHIN": CONFIRM_WITHIN}
    environment = Environment(new_namespace(), url, celery=CELERY, settings=configured)
    more = {
        "INSTALLED_APPS": [*settings.INSTALLED_APPS, "tests.crash"],
        # The dead of a Redis store are buried in the default database.
        "DATABASES": {"default": grave.database, **{each.alias: each.database for each in engines.values()}},
    }
    crashing = environment.having(settings=more)
    with contextlib.ExitStack() as stack:
        stack.callback(environment.clean)
        stack.enter_context(environment.entered(app))
        zygote = stack.enter_context(Zygote(crashing, folder, "tests.crash.orders"))
        zygote.order("maintain", unattended=[UNATTENDED])
        rescue = Worker(crashing, folder, pool="threads", concurrency=RESCUERS, queues=["rescue"])
        shared = Worker(crashing, folder, concurrency=POOL, queues=["shared"])
        for worker in (rescue, shared):
            stack.enter_context(worker)
        client = stack.enter_context(redis.Redis.from_url(url, decode_responses=True))
        aliases = configured["JOBDEDUP_STORES"]
        desks = {alias: stack.enter_context(contextlib.closing(Desk())) for alias in aliases}
        graves = {alias: engines.get(alias, grave).alias for alias in aliases}
        shelves = {alias: desks[alias].do(Shelf, alias, client, graves[alias]) for alias in aliases}
        planner, journal, broker = (
            stack.enter_context(contextlib.closing(kind(url, environment.namespace)))
            for kind in (Planner, FollowedJournal, Broker)
        )
        switch = stack.enter_context(contextlib.closing(Switch(broker)))
        for worker in (rescue, shared):
            worker.wait_until_ready()
        yield Laboratory(app, environment, zygote, desks, shelves, planner, journal, broker, switch, client)
