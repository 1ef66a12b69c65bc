"""How long a dispatch takes."""

from __future__ import annotations

import gc
import itertools
import time as clock
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.jobs import Tasks
from benchmarks.table import Timings
from django_jobdedup import dispatch_many
from django_jobdedup.dispatching.confirm import confirmer


def time(tasks: Tasks, rounds: int, calls: int) -> Timings:
    """Time plain, accepted and suppressed dispatches; seconds per call."""
    numbers = itertools.count()
    tasks.unique.delay(-1)
    cases: dict[str, Callable[[int], object]] = {
        "plain delay()": tasks.plain.delay,
        "accepted": tasks.unique.delay,
        "accepted, while_executing": tasks.mutex.delay,
        "suppressed": lambda _: tasks.unique.delay(-1),
    }
    bulk = {"dispatch_many(), accepted": tasks.unique, "dispatch_many(), no policy": tasks.plain}
    timings: Timings = {name: [] for name in (*cases, *bulk)}
    for number in range(-1, rounds):
        for name in list(cases)[:: 1 if number % 2 else -1]:
            taken = block(cases[name], numbers, calls)
            if number >= 0:  # the round before only warms up
                timings[name].append(taken)
            tasks.app.control.purge()  # so that the length of the queue does not colour later blocks
        for name, task in bulk.items():
            taken = block(many(task, numbers, calls), numbers, 1) / calls
            if number >= 0:
                timings[name].append(taken)
            tasks.app.control.purge()
    return timings


def many(task: Any, numbers: Iterator[int], calls: int) -> Callable[[int], object]:
    """Return a function that dispatches a block at once, its signatures made within."""
    return lambda _: dispatch_many([task.s(next(numbers)) for _ in range(calls)])


def block(function: Callable[[int], object], numbers: Iterator[int], calls: int) -> float:
    """Return seconds per call of one block, confirms included, garbage collection held off."""
    gc.collect()
    gc.disable()
    started = clock.perf_counter()
    for _ in range(calls):
        function(next(numbers))
    confirmer.flush()
    taken = (clock.perf_counter() - started) / calls
    gc.enable()
    return taken
