"""Time dispatch and execution against plain Celery: ``python -m benchmarks``.

Every figure is a ratio to the plain task of the same round; rounds alternate the order, the median is
printed with the lowest and the highest. Absolute microseconds are shown for orientation only: they
belong to this machine. Exits with 1 when a stated bound is broken.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from testproject.embedded_redis import EmbeddedRedis

#: Highest ratio to plain ``delay()`` that is allowed.
BOUNDS = {"accepted": 1.35, "suppressed": 0.30}

Timings = dict[str, list[float]]


def per_call(function: Callable[[int], object], numbers: Iterator[int], calls: int) -> float:
    """Return seconds per call, garbage collection held off."""
    gc.collect()
    gc.disable()
    started = time.perf_counter()
    for _ in range(calls):
        function(next(numbers))
    taken = (time.perf_counter() - started) / calls
    gc.enable()
    return taken


def time_dispatch(rounds: int, calls: int) -> Timings:
    """Time plain, accepted and suppressed dispatches."""
    from benchmarks.jobs import mutex, plain, unique
    from django_jobdedup.dispatching.confirm import confirmer

    numbers = itertools.count()
    unique.delay(-1)
    cases: dict[str, Callable[[int], object]] = {
        "plain delay()": plain.delay,
        "accepted": unique.delay,
        "accepted, while_executing": mutex.delay,
        "suppressed": lambda _: unique.delay(-1),
    }
    for case in cases.values():
        per_call(case, numbers, calls // 4)
    timings: Timings = defaultdict(list)
    for number in range(rounds):
        for name in list(cases)[:: 1 if number % 2 else -1]:
            timings[name].append(per_call(cases[name], numbers, calls))
            confirmer.flush()
            drop_queue()
    return timings


def drop_queue() -> None:
    """Empty the queue of this run's own database, so that its length does not colour later rounds."""
    from benchmarks.jobs import app

    app.control.purge()


def time_execution(rounds: int, calls: int) -> Timings:
    """Time the run of a full queue by one solo worker, first message to last."""
    from benchmarks.jobs import mutex, plain, unique

    timings: Timings = defaultdict(list)
    tasks = {"plain run": plain, "run": unique, "run, while_executing": mutex}
    for number in range(rounds):
        for name in list(tasks)[:: 1 if number % 2 else -1]:
            timings[name].append(run_queue(tasks[name], calls) / calls)
    return timings


def run_queue(task: object, calls: int) -> float:
    """Queue *calls* jobs while no worker consumes, then time them by marks at both ends."""
    import redis

    from benchmarks.jobs import app, finish
    from django_jobdedup.dispatching.confirm import confirmer

    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    first, last = uuid.uuid4().hex, uuid.uuid4().hex
    app.control.cancel_consumer("celery", reply=True, timeout=1)
    finish.delay(first)
    for number in range(calls):
        task.delay(number)  # type: ignore[attr-defined]
    finish.delay(last)
    confirmer.flush()
    app.control.add_consumer("celery", reply=False)
    started = wait_for(client, first)
    return wait_for(client, last) - started


def wait_for(client: object, mark: str) -> float:
    """Return the moment at which a mark appears."""
    deadline = time.monotonic() + 120
    while not client.exists(mark):  # type: ignore[attr-defined]
        if time.monotonic() > deadline:
            raise SystemExit("The worker did not finish its queue within two minutes.")
        time.sleep(0.002)
    return time.perf_counter()


@contextmanager
def worker() -> Iterator[None]:
    """Run one solo worker."""
    words = [sys.executable, "-m", "celery", "-A", "benchmarks.jobs", "worker", "-P", "solo", "-l", "ERROR"]
    process = subprocess.Popen([*words, "--without-gossip", "--without-mingle", "--without-heartbeat"])
    try:
        from benchmarks.jobs import app

        while not app.control.ping(timeout=1):
            if process.poll() is not None:
                raise SystemExit("The worker did not start.")
        yield
    finally:
        process.terminate()
        process.wait(30)


def table(timings: Timings, base: str) -> dict[str, dict[str, float]]:
    """Return microseconds and ratios to *base*, pair by pair."""
    rows = {}
    for name, values in timings.items():
        ratios = [value / plain for value, plain in zip(values, timings[base], strict=True)]
        rows[name] = {
            "us": statistics.median(values) * 1e6,
            "ratio": statistics.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
        }
    return rows


def show(rows: dict[str, dict[str, float]]) -> None:
    """Print one table."""
    for name, row in rows.items():
        print(f"{name:28} {row['us']:8.0f} us   x{row['ratio']:.2f}  [{row['low']:.2f} - {row['high']:.2f}]")


def main() -> int:
    """Run all timings; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    chosen = parser.parse_args()
    with EmbeddedRedis() as server:
        os.environ.update(REDIS_URL=server.url, TESTPROJECT_SETTINGS='{"JOBDEDUP_REQUIRE_WORKER": false}')
        import django

        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
        django.setup()
        rows = table(time_dispatch(chosen.rounds, chosen.calls), "plain delay()")
        show(rows)
        with worker():
            execution = table(time_execution(max(3, chosen.rounds // 2), chosen.calls), "plain run")
        show(execution)
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump({**rows, **execution}, file, indent=2)
    broken = {name: bound for name, bound in BOUNDS.items() if rows[name]["ratio"] > bound}
    for name, bound in broken.items():
        print(f"{name}: above the bound of x{bound}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
