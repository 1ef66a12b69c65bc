"""How long the run of a job takes, in a queue of equal jobs."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time as clock
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from benchmarks.jobs import Tasks, finish
from benchmarks.table import Timings
from django_jobdedup.dispatching.confirm import confirmer

#: Longest time for one queue, seconds.
PATIENCE = 120
#: Arguments of jobs, each used once, and not by the timing of dispatches, whose locks are still held.
NUMBERS = itertools.count(10**9)


def time(tasks: Tasks, rounds: int, jobs: int) -> Timings:
    """Time the run of a full queue by one solo worker, first message to last; seconds per job."""
    cases = {"plain run": tasks.plain, "run": tasks.unique, "run, while_executing": tasks.mutex}
    timings: Timings = {name: [] for name in cases}
    for number in range(rounds):
        for name in list(cases)[:: 1 if number % 2 else -1]:
            timings[name].append(run_queue(tasks, cases[name], jobs) / jobs)
    return timings


def run_queue(tasks: Tasks, task: Any, jobs: int) -> float:
    """Queue jobs while no worker consumes, then time them by marks at both ends."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    first, last = uuid.uuid4().hex, uuid.uuid4().hex
    tasks.app.control.cancel_consumer("celery", reply=True, timeout=1)
    finish.delay(first)
    for _ in range(jobs):
        if task.delay(next(NUMBERS)).duplicate:
            raise SystemExit("A job was suppressed: the queue would be shorter than it should be.")
    finish.delay(last)
    confirmer.flush()
    tasks.app.control.add_consumer("celery", reply=False)
    started = wait_for(client, first)
    return wait_for(client, last) - started


def wait_for(client: Any, mark: str) -> float:
    """Return the moment at which a mark appears."""
    deadline = clock.monotonic() + PATIENCE
    while not client.exists(mark):
        if clock.monotonic() > deadline:
            raise SystemExit(f"The worker did not finish its queue within {PATIENCE} seconds.")
        clock.sleep(0.002)
    return clock.perf_counter()


@contextmanager
def worker() -> Iterator[None]:
    """Run one solo worker, silent unless it does not start."""
    words = [
        sys.executable,
        "-m",
        "celery",
        "-q",
        "-A",
        "benchmarks.jobs",
        "worker",
        "-P",
        "solo",
        "-l",
        "ERROR",
    ]
    words += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        from benchmarks.jobs import app

        while not app.control.ping(timeout=1):
            if process.poll() is not None:
                raise SystemExit(f"The worker did not start; see why with:\n{' '.join(words)}")
        yield
    finally:
        process.terminate()
        process.wait(30)
