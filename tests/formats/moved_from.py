"""A module that a task has left: its name is queued still."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from tests.jobs.tasks import unique
from tests.rig.journal import recorded


@shared_task(bind=True, name="tests.formats.moved_from.settle", unique=unique(lock_name="tests.settle"))
def settle(self: Any, key: str, seconds: float = 0.0) -> str:
    """Run under the old name."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return "old"
