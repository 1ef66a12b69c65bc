"""Time dispatch and execution against plain Celery: ``python -m benchmarks [--quick]``.

Every figure is a ratio to the plain task of the same round; a round times short blocks of calls side by
side, rounds alternate the order, the median is printed with the quartiles. A block of accepted calls
ends when its confirms are done, so their whole price is in it. Absolute microseconds are shown for
orientation only: they belong to this machine.

The bounds are checked on the project's usual configuration, which has a Redis result backend: plain
``delay()`` then subscribes to its result, and a refused caller's ``get()`` works. A second table shows
the same without a backend, where plain Celery does less and the ratios are higher; no bound stands there.
Exits with 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks import database
from benchmarks.table import Timings, show, table
from testproject.embedded_redis import EmbeddedRedis

#: Highest ratio to plain ``delay()`` that is allowed, with the result backend.
BOUNDS = {"accepted": 1.35, "suppressed": 0.30}
#: Rounds of dispatch, calls in a block, rounds of execution, jobs in a queue.
USUAL, QUICK = (40, 200, 5, 500), (12, 100, 1, 200)


def main() -> int:
    """Run all timings; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    parser.add_argument("--dispatch-only", action="store_true", help="start no worker")
    parser.add_argument("--databases", action="store_true", help="time the database store, and nothing else")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there")
    chosen = parser.parse_args()
    if chosen.databases:
        return time_databases(*(QUICK if chosen.quick else USUAL)[:2])
    with EmbeddedRedis() as server:
        os.environ.update(REDIS_URL=server.url, TESTPROJECT_SETTINGS='{"JOBDEDUP_REQUIRE_WORKER": false}')
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
        figures = measure(*(QUICK if chosen.quick else USUAL), workers=not chosen.dispatch_only)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    return broken(figures["dispatch"])


def time_databases(rounds: int, calls: int) -> int:
    """Time the database store on what is there; no bound stands there."""
    with EmbeddedRedis() as server, ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["REDIS_URL"] = server.url
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
        os.environ["TESTPROJECT_SETTINGS"] = json.dumps(database.settings_of(stack, Path(folder)))
        import django

        django.setup()
        from benchmarks import jobs as timed

        names = database.migrate()
        stack.callback(database.close)
        show("dispatch", table(database.time_dispatch(timed.usual, names, rounds, calls // 4)))
        show("start and end of a body", table(database.time_verbs(names, rounds, calls // 4)))
    return 0


def measure(
    rounds: int, calls: int, runs: int, jobs: int, workers: bool
) -> dict[str, dict[str, dict[str, float]]]:
    """Time everything and print each table as soon as it is there."""
    import django

    django.setup()
    from benchmarks import dispatch, execution
    from benchmarks import jobs as timed

    figures = {}

    def print_table(title: str, timings: Timings) -> None:
        figures[title] = table(timings)
        show(title, figures[title])

    print_table("dispatch", dispatch.time(timed.usual, rounds, calls))
    print_table("dispatch, no result backend", dispatch.time(timed.bare, rounds, calls))
    if workers:
        with execution.worker():
            print_table("execution", execution.time(timed.usual, runs, jobs))
    return figures


def broken(rows: dict[str, dict[str, float]]) -> int:
    """Say which bounds are broken; return the exit code."""
    above = {name: bound for name, bound in BOUNDS.items() if rows[name]["ratio"] > bound}
    for name, bound in above.items():
        print(f"{name}: above the bound of x{bound:.2f}", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    raise SystemExit(main())
