"""The Celery app of a project whose tracer wraps ``Task.apply_async`` and ``Celery.send_task``.

Datadog's does so: a wrapper on the class, which puts headers of its own beside those that are there, and
around the hook as well, because it patches late.
"""

from __future__ import annotations

import functools
from typing import Any

from celery import Celery, Task

from testproject.celery import app  # noqa: F401

TRACE = {"x-datadog-trace-id": "1234", "x-datadog-parent-id": "5678"}


def wrap(owner: Any, name: str) -> None:
    """Wrap one method of a class."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def traced(self: Any, *args: Any, **options: Any) -> Any:
        options["headers"] = {**(options.get("headers") or {}), **TRACE}
        return original(self, *args, **options)

    setattr(owner, name, traced)


def instrument(**_: object) -> None:
    """Wrap both."""
    wrap(Task, "apply_async")
    wrap(Celery, "send_task")


instrument()
