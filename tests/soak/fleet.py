"""The workers under fire: four at a time, one a pool; whoever is struck is replaced at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import redis

from tests.rig.environment import Environment
from tests.rig.forking import Forked, Zygote
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from .popping import rescue

PREFORK, SOLO, THREADS, GEVENT = "prefork", "solo", "threads", "gevent"
CONCURRENCY: Final = {PREFORK: 6, SOLO: 1, THREADS: 12, GEVENT: 16}
OFTEN: Final = {PREFORK: 9, SOLO: 5, THREADS: 5, GEVENT: 1}
"""How often each is struck, relative to the others: a gevent worker takes seconds to start."""
WAYS: Final = {"kill": 6, "terminate": 2, "quit": 2, "child": 5}
"""How often each way is taken."""
POOLS_OF: Final = {"child": (PREFORK,), "quit": (PREFORK, GEVENT)}
"""Ways that are not for all pools: Celery's cold shutdown of the others raises wherever the process is."""
LINGERS: Final = 6.0
"""Seconds after which one that was told to go is killed."""
SEEN: Final = 1.0
"""Seconds that a worker works before it is struck."""


@dataclass(slots=True)
class Station:
    """One place in the fleet: a pool, and the worker that serves it."""

    pool: str
    worker: Worker | Forked
    ready: Path

    def can_be_struck(self) -> bool:
        """Say whether it has worked for a while."""
        return self.ready.exists() and time.time() - self.ready.stat().st_mtime > SEEN


class Fleet:
    """Starts, strikes and replaces workers; ``cold`` are those that were told to drop what they do."""

    def __init__(self, environment: Environment, zygote: Zygote, folder: Path, chosen: random.Random) -> None:
        self.struck: Counter[str] = Counter()
        self.cold: set[str] = set()
        self._environment, self._zygote, self._folder, self._chosen = environment, zygote, folder, chosen
        self._stack = ExitStack()
        self._client = self._stack.enter_context(redis.Redis.from_url(environment.redis_url))
        self._number = 0
        self._leaving: list[tuple[float, Worker | Forked]] = []
        self._stations = [self._manned(pool) for pool in CONCURRENCY]

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exc: object) -> None:
        for station in self._stations:
            if station.worker.running:
                station.worker.kill()
        self._stack.close()

    def wait_until_ready(self) -> None:
        """Wait until all of them work."""
        for each in self._stations:
            wait_for(each.ready.exists, 30, what=lambda each=each: f"a ready worker: {each.worker.log}")

    def strike(self) -> None:
        """Strike one that works, if there is one, in some way."""
        self._send_off()
        for each in self._stations:
            assert each.worker.running, f"it ended by itself: {each.worker.log}"
        able = [each for each in self._stations if each.can_be_struck()]
        if not able:
            return
        (station,) = self._chosen.choices(able, [OFTEN[each.pool] for each in able])
        ways = [way for way in WAYS if station.pool in POOLS_OF.get(way, CONCURRENCY)]
        (way,) = self._chosen.choices(ways, [WAYS[way] for way in ways])
        self.struck[f"{station.pool} {way}"] += 1
        with (self._folder / "strikes").open("a") as file:  # for people who look for the cause of something
            file.write(f"{time.monotonic():.3f} {way} {station.ready.name}\n")
        if way == "quit":
            self.cold.add(station.ready.name)
        if way == "child":
            self._kill_child(station.worker.pid)
            return
        getattr(station.worker, way)()
        self._leaving.append((time.monotonic(), station.worker))
        self._stations[self._stations.index(station)] = self._manned(station.pool)

    def _send_off(self) -> None:
        """Kill those who linger, and save what the dead have left."""
        for told, worker in list(self._leaving):
            if not worker.running:
                self._leaving.remove((told, worker))
                rescue(self._client, worker.pid, self._environment.namespace)
            elif time.monotonic() - told > LINGERS:
                worker.kill()

    def settle(self) -> None:
        """Let nobody linger."""
        wait_for(
            lambda: self._send_off() or not self._leaving, 2 * LINGERS, what="the end of the old workers"
        )

    def _manned(self, pool: str) -> Station:
        self._number += 1
        name = f"soak-{pool}-{self._number}@localhost"
        log = self._folder / f"{name}.log"
        options = ["--loglevel", "WARNING", "--without-heartbeat"]
        if pool == GEVENT:
            worker = self._stack.enter_context(
                Worker(
                    self._environment,
                    self._folder,
                    pool=pool,
                    concurrency=CONCURRENCY[pool],
                    options=["--hostname", name, *options],
                )
            )
            return Station(pool, worker, self._folder / name)
        words = ["worker", "--hostname", name, "--pool", pool, "--concurrency", str(CONCURRENCY[pool])]
        words += ["--without-gossip", "--without-mingle", *options]
        pid = self._zygote.order(do="work", words=words, log=str(log))
        return Station(pool, Forked(name, pid, log), self._folder / name)

    def _kill_child(self, pid: int) -> None:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if children := psutil.Process(pid).children():
                os.kill(self._chosen.choice(children).pid, signal.SIGKILL)
