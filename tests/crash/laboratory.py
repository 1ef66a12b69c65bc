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

from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record, Ref
from django_jobdedup.stores.redis.store import RedisStore
from tests.crash.broker import Broker
from tests.crash.cells import CONFIRM_WITHIN, LOST_WAIT, VISIBILITY, Cell
from tests.crash.finding import Finding
from tests.crash.following import FollowedJournal
from tests.crash.launcher import Launcher
from tests.crash.strikes import Planner
from tests.crash.trial import Trial
from tests.rig.environment import Environment, new_namespace
from tests.rig.redelivery import FAST_REDELIVERY, restore_lapsed
from tests.rig.worker import Worker

SIDE_BY_SIDE = 16
"""Cells at one time: most of them wait most of the time."""
RESCUERS, POOL = 10, 12

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
