"""Counting: how often each outcome came up, per task.

What reaches the store is counted there, in the same atomic step (``counts_in_store`` asks for it), so the
numbers add up over all processes. What does not reach it (bypassed, observed, unprotected) is
counted in this process.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

from django_jobdedup.call import Call
from django_jobdedup.middleware.base import Dispatch, Middleware


class Totals:
    """The numbers of this process; a forked child begins anew."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, with a lock that no thread of a parent process holds."""
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._guard = Lock()

    def add(self, done: Sequence[Dispatch]) -> None:
        """Count what calls became."""
        with self._guard:
            for item in done:
                self._numbers[item.call.task, item.outcome.value] += 1
                if item.would:
                    self._numbers[item.call.task, f"would_{item.would}"] += 1

    def read(self) -> dict[tuple[str, str], int]:
        """Return a copy."""
        with self._guard:
            return dict(self._numbers)


_totals: Final = Totals()
os.register_at_fork(after_in_child=_totals.reset)


def totals() -> dict[tuple[str, str], int]:
    """Return ``{(task name, outcome): number}`` of the dispatches of this process.

    An observed call that would have met a job counts as ``would_suppress`` and the like besides.
    """
    return _totals.read()


class CountingMiddleware(Middleware):
    """Count dispatches here, and ask the store to count what it decides."""

    counts_in_store = True

    def dispatch(
        self, calls: Sequence[Call], call_next: Callable[[Sequence[Call]], list[Dispatch]]
    ) -> list[Dispatch]:
        """Count what the calls became."""
        done = call_next(calls)
        _totals.add(done)
        return done
