"""The module that the task has moved to, under a new name and with an argument more."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from tests.jobs.tasks import unique
from tests.rig.journal import recorded


@shared_task(bind=True, name="tests.formats.moved_to.settle_all", unique=unique(lock_name="tests.settle"))
def settle_all(self: Any, key: str, seconds: float = 0.0, *, note: str = "") -> str:
    """Run under the new name."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return "new"
