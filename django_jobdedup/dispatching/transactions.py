"""A hint for developers: a dispatch inside an open transaction takes effect at once.

A durable store in the same database cures it, see ``deferral``; with any other, or for a transaction of
another database:

A worker may start before the commit, and a rollback does not take the job back. Django's
``transaction.on_commit``, Celery's ``delay_on_commit`` cure both.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import connections

from django_jobdedup.middleware.keeping import durable

logger = logging.getLogger("django_jobdedup")

_warned: set[str] = set()


def warn_if_open(task: str, store: str = "") -> None:
    """Log once per task, under DEBUG, that it is dispatched inside an open transaction.

    Not for a transaction of the database in which the store (its alias) keeps calls until the commit.
    """
    if not settings.DEBUG or task in _warned:
        return
    kept = durable(store)
    own = kept.using if kept is not None else ""
    if any(each.in_atomic_block and each.alias != own for each in connections.all(initialized_only=True)):
        _warned.add(task)
        logger.warning(
            "%s is dispatched inside an open transaction: it takes effect at once, before the commit, "
            "and a rollback does not take it back. Call %s.delay_on_commit(...) instead.",
            task,
            task.rpartition(".")[2],
            extra={"action": "in_transaction", "task": task},
        )
