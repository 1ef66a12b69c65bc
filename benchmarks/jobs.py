"""The tasks that are timed: one body, without and with a policy, on an app with and one without results."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")


@dataclass(frozen=True)
class Tasks:
    """The timed tasks of one app."""

    app: Celery
    plain: Any
    unique: Any
    mutex: Any


def tasks_of(name: str, **options: Any) -> Tasks:
    """Make an app with the project's settings and the options, and its tasks."""
    app = Celery(name, set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    app.conf.update(worker_prefetch_multiplier=64, **options)

    def body(tenant_id: int, period: str = "2026-08") -> None:
        """Do nothing."""

    return Tasks(
        app,
        app.task(body, name=f"{name}.plain"),
        app.task(body, name=f"{name}.unique", unique=True),
        app.task(body, name=f"{name}.mutex", unique={"lock": "while_executing"}),
    )


#: As the project is configured, with its result backend.
usual = tasks_of("benchmarks")
#: Without a result backend.
bare = tasks_of("benchmarks.bare", result_backend=None, task_ignore_result=True)
app = usual.app


@app.task
def finish(mark: str) -> None:
    """Say that everything queued before has run."""
    import redis

    redis.Redis.from_url(os.environ["REDIS_URL"]).set(mark, "1", ex=60)
