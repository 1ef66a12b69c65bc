"""Counting: how often each outcome came up, per task.

What reaches the store is counted there, in the same atomic step (``counts_in_store`` asks for it), so the
numbers add up over all processes. What does not reach it (bypassed, observed, unprotected) is
counted in this process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock

from django_jobdedup.call import Call
from django_jobdedup.middleware.base import Dispatch, Middleware

_totals: Counter[tuple[str, str]] = Counter()
_guard = Lock()


def totals() -> dict[tuple[str, str], int]:
    """Return ``{(task name, outcome): number}`` of the dispatches of this process."""
    with _guard:
        return dict(_totals)


class CountingMiddleware(Middleware):
    """Count dispatches here, and ask the store to count what it decides."""

    counts_in_store = True

    def dispatch(
        self, calls: Sequence[Call], call_next: Callable[[Sequence[Call]], list[Dispatch]]
    ) -> list[Dispatch]:
        """Count what the calls became."""
        done = call_next(calls)
        with _guard:
            for item in done:
                _totals[item.call.task, item.outcome.value] += 1
        return done
