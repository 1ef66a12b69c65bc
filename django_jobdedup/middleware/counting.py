"""Counting: how often each outcome came up, per task.

What reaches the store is counted there, in the same atomic step (``counted`` asks for it), so the
numbers add up over all processes. What does not reach it (bypassed, observed, unprotected) is
counted in this process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from django_jobdedup.call import Call, Execution
from django_jobdedup.middleware.base import Dispatch, Middleware

_totals: Counter[tuple[str, str]] = Counter()
_guard = Lock()


def totals() -> dict[tuple[str, str], int]:
    """Return ``{(task name, outcome): number}`` of the dispatches of this process."""
    with _guard:
        return dict(_totals)


class CountingMiddleware(Middleware):
    """Count dispatches here, and ask the store to count what it decides."""

    def dispatch(
        self, calls: Sequence[Call], call_next: Callable[[Sequence[Call]], list[Dispatch]]
    ) -> list[Dispatch]:
        """Mark the calls as counted and count what they became."""
        done = call_next([replace(call, counted=True) for call in calls])
        with _guard:
            _totals.update((item.call.task, item.outcome.value) for item in done)
        return done

    def execute(self, execution: Execution, call_next: Callable[[Execution], Any]) -> Any:
        """Mark the execution as counted."""
        return call_next(replace(execution, counted=True))
