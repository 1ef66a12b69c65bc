"""The workers that play: one of each pool for all, and one for each ending that takes its worker along."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from celery.result import AsyncResult

from django_jobdedup.header import task_id_of
from testproject.celery import app
from tests.rig.environment import Environment, new_namespace
from tests.rig.forking import Forked, Zygote
from tests.rig.journal import Journal, Run
from tests.rig.redelivery import FAST_REDELIVERY
from tests.rig.worker import Worker

from ..conftest import new_key, swept
from ..remains import LockKeys
from . import jobs
from .plays import Scene, unknown, unknown_again
from .rows import GEVENT, POOLS, Cell
from .seen import Seen
from .waits import Story, T, pause, until

AT_A_TIME = {"prefork": 8, "solo": 3, "threads": 12, "gevent": 12, "alone": 5}
"""Stories that are told at the same time on the standing worker of a pool, or on workers of their own."""
CONCURRENCY = {"prefork": 8, "solo": 1, "threads": 60, "gevent": 60}
PATIENCE = 45.0
"""Seconds until the next call must be accepted."""
LINGERS = 15.0
"""Seconds until a worker that has been told to go is killed."""
PAUSE = 0.2
"""Seconds between two tries of it."""
Start = Callable[[str, str, int, Mapping[str, Any]], Worker | Forked]
"""Starts a worker: queue, pool, concurrency, more Celery options."""


@dataclass(slots=True)
class Troupe:
    """A world with its standing workers."""

    environment: Environment
    start: Start
    standing: dict[str, Worker | Forked]
    journal: Journal
    lock_keys: LockKeys
    _read: tuple[float, list[Run]] = (0.0, [])
    _busy: Counter[str] = field(default_factory=Counter)
    _taken: set[str] = field(default_factory=set)

    def runs(self, key: str) -> list[Run]:
        """Give the runs of a key, from a reading at most a fifth of a second old."""
        if time.monotonic() - self._read[0] > 0.2:
            self._read = (time.monotonic(), self.journal.runs())
        return [run for run in self._read[1] if run.key == key]

    def play(self, cells: Sequence[Cell]) -> Story[list[Seen]]:
        """Play cells that share a worker; several when one strike ends them all."""
        pool = cells[0].pool
        stage = "alone" if cells[0].alone else pool
        return (yield from self.on_stage(stage, self._played(cells), 10 * PATIENCE))

    def on_stage(self, stage: str, story: Story[T], timeout: float) -> Story[T]:
        """Tell a story as soon as there is room for it; *timeout* in seconds."""
        yield from until(lambda: self._busy[stage] < AT_A_TIME[stage], timeout, "a free stage")
        self._busy[stage] += 1
        try:
            return (yield from story)
        finally:
            self._busy[stage] -= 1

    def _played(self, cells: Sequence[Cell]) -> Story[list[Seen]]:
        pool = queue = cells[0].pool
        worker = self.standing[pool]
        if cells[0].alone:
            queue = new_key(pool)
            worker = yield from self._started(queue, cells)
        scene = Scene(self.environment, pool, worker, queue, cells[0].seconds, self.runs)
        keys, firsts = {cell: new_key() for cell in cells}, {}
        for cell, key in keys.items():
            firsts[cell] = protected((yield from self._begin(cell, scene, key)))
        if strike := cells[0].row.strike:
            for key in keys.values():
                yield from scene.start(key)
            getattr(worker, strike)()
        begun = time.monotonic()
        accepted = yield from self._next_calls(keys, scene)
        found = []
        for cell, (second, *times) in accepted.items():
            runs = yield from self._seen_through(cell, scene, second, keys[cell])
            found.append(Seen(cell, firsts[cell], second, runs, begun, *times))
        return found

    def _started(self, queue: str, cells: Sequence[Cell]) -> Story[Worker | Forked]:
        """Start a worker for these cells alone."""
        worker = self.start(queue, cells[0].pool, len(cells), cells[0].row.celery)
        yield from until(lambda: " ready." in worker.log, PATIENCE, "a worker that is ready")
        return worker

    def _begin(self, cell: Cell, scene: Scene, key: str) -> Story[AsyncResult]:
        task = cell.row.task(cell.ack)
        if not cell.row.strike:
            return (yield from cell.row.play(scene, task, key))
        return task.apply_async((key, "succeed_once", cell.seconds), queue=scene.queue)

    def _next_calls(
        self, keys: dict[Cell, str], scene: Scene
    ) -> Story[dict[Cell, tuple[AsyncResult, float, float]]]:
        """Call until each is accepted; give that one, and the times of the last refusal and of this."""
        accepted: dict[Cell, tuple[AsyncResult, float, float]] = {}
        refused = dict.fromkeys(keys, 0.0)
        end = time.monotonic() + PATIENCE
        while True:
            for cell in [cell for cell in keys if cell not in accepted]:
                now = time.monotonic()
                result = protected(self._again(cell, scene, keys[cell]))
                if result.duplicate:
                    refused[cell] = now
                else:
                    accepted[cell] = result, refused[cell], time.monotonic()
            self._succeed(scene)
            left = [cell.name for cell in keys if cell not in accepted]
            if not left:
                return accepted
            assert time.monotonic() < end, f"still refused: {left}"
            yield from pause(PAUSE)

    def _succeed(self, scene: Scene) -> None:
        """Have the standing worker of the same pool take over from one that has ended."""
        if scene.worker.running or scene.queue in self._taken:
            return
        self._taken.add(scene.queue)
        app.control.add_consumer(scene.queue, destination=[self.standing[scene.pool].name])

    def _seen_through(self, cell: Cell, scene: Scene, second: AsyncResult, key: str) -> Story[list[Run]]:
        """Wait for the end of the next call, and give all runs."""

        end = time.monotonic() + LINGERS

        def is_over() -> bool:
            if cell.alone and time.monotonic() > end:
                scene.worker.kill()  # before 5.7 a solo worker reads nothing any more, and stays
            self._succeed(scene)
            return cell.row.play is unknown or second.ready()

        yield from until(is_over, PATIENCE, f"the next call of {cell.name}")
        return [run for run in self.journal.runs() if run.key == key]

    def _again(self, cell: Cell, scene: Scene, key: str) -> Any:
        if cell.row.play is unknown:
            return unknown_again(scene, key)
        args = (key,) if cell.row.again == "succeed" else (key, cell.row.again)
        return cell.row.task(cell.ack).apply_async(args, queue=scene.queue)

    def events(self) -> dict[str, tuple[str, ...]]:
        """Give what the store noted, by task id."""
        found: dict[str, tuple[str, ...]] = {}
        streams = [key for key in self.lock_keys.keys() if key.endswith(":events")]  # noqa: SIM118 - no dict
        with redis.Redis.from_url(self.environment.redis_url, decode_responses=True) as client:
            for _, event in (entry for stream in streams for entry in client.xrange(stream)):
                task_id = task_id_of(event["id"])
                found[task_id] = (*found.get(task_id, ()), event["what"])
        return found


def protected(result: AsyncResult) -> AsyncResult:
    """Give a result back; raises AssertionError when the store did not answer on a busy machine."""
    assert result.outcome != "unprotected", "the store did not answer"
    return result


def stories(cells: Sequence[Cell]) -> list[tuple[Cell, ...]]:
    """Put those together that one strike ends."""
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.row, cell.pool) if cell.paired else cell, []).append(cell)
    return [tuple(group) for group in groups.values()]


@contextmanager
def troupe(url: str, folder: Path) -> Iterator[Troupe]:
    """Start the standing workers."""
    options = {
        **jobs.OPTIONS,
        "broker_transport_options": {**FAST_REDELIVERY, "visibility_timeout": jobs.VISIBILITY},
    }
    environment = Environment(new_namespace(), url, celery=options, settings=jobs.SETTINGS)
    with environment.entered(app), swept(), ExitStack() as stack:
        zygote = stack.enter_context(Zygote(environment, folder))

        def start(queue: str, pool: str, concurrency: int, options: Mapping[str, Any]) -> Worker | Forked:
            if pool != GEVENT:
                return zygote.work(queue, pool=pool, concurrency=concurrency, options=options)
            world = environment.having(celery=options)
            return stack.enter_context(
                Worker(world, folder, pool=pool, queues=[queue], concurrency=concurrency)
            )

        standing = {pool: start(pool, pool, CONCURRENCY[pool], {}) for pool in POOLS}
        for worker in standing.values():
            worker.wait_until_ready()
        journal = stack.enter_context(closing(Journal(environment.redis_url, environment.namespace)))
        lock_keys = stack.enter_context(closing(LockKeys(environment)))
        yield Troupe(environment, start, standing, journal, lock_keys)
    environment.clean()
