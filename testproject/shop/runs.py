"""The shop's own log of what ran: one row for each start of a body, written by the body itself.

It knows nothing of locks, so it can judge them: the demo counts in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from celery import current_task
from django.utils import timezone

from .models import Run

P = ParamSpec("P")
R = TypeVar("R")


def recorded(body: Callable[P, R]) -> Callable[P, R]:
    """Write a ``Run`` at the start of a task body, and its end when it returns."""

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        job = getattr(current_task, "request", None)
        row = Run.objects.create(
            job=getattr(job, "id", None) or "", call=spelled(body.__name__, *args, **kwargs)
        )
        value = body(*args, **kwargs)
        Run.objects.filter(pk=row.pk).update(ended=timezone.now())
        return value

    return run


def spelled(name: str, *args: object, **kwargs: object) -> str:
    """Spell a call, as "build_report(1, '2026-08')"."""
    words = [*map(repr, args), *(f"{word}={value!r}" for word, value in kwargs.items())]
    return f"{name}({', '.join(words)})"
