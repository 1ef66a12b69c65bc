"""The tasks that are timed: one body, without and with a policy."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

app = Celery("benchmarks")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(result_backend=None, task_ignore_result=True, worker_prefetch_multiplier=64)


@app.task
def plain(tenant_id: int, period: str = "2026-08") -> None:
    """Do nothing, without a policy."""


@app.task(unique=True)
def unique(tenant_id: int, period: str = "2026-08") -> None:
    """Do nothing, under the default policy."""


@app.task(unique={"lock": "while_executing"})
def mutex(tenant_id: int, period: str = "2026-08") -> None:
    """Do nothing, one at a time."""


@app.task
def finish(mark: str) -> None:
    """Say that everything queued before has run."""
    import redis

    redis.Redis.from_url(os.environ["REDIS_URL"]).set(mark, "1", ex=60)
