"""A hint for developers: a dispatch inside an open transaction takes effect at once.

A worker may start before the commit, and a rollback does not take the job back. Django's
``transaction.on_commit``, Celery's ``delay_on_commit`` cure both.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import connections

logger = logging.getLogger("django_jobdedup")

_warned: set[str] = set()


def warn_if_open(task: str) -> None:
    """Log once per task, under DEBUG, that it is dispatched inside an open transaction."""
    if not settings.DEBUG or task in _warned:
        return
    if any(connection.in_atomic_block for connection in connections.all(initialized_only=True)):
        _warned.add(task)
        logger.warning(
            "%s is dispatched inside an open transaction: it takes effect at once, before the commit, "
            "and a rollback does not take it back. Call %s.delay_on_commit(...) instead.",
            task,
            task.rpartition(".")[2],
            extra={"action": "in_transaction", "task": task},
        )
