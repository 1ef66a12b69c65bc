"""A hint for developers: a dispatch inside an open transaction takes effect at once.

A durable store in the same database cures it, see ``deferral``; with any other, or for a transaction of
another database:

A worker may start before the commit, and a rollback does not take the job back. Django's
``transaction.on_commit``, and for the default database Celery's ``delay_on_commit``, cure both.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from django_jobdedup.middleware.keeping import durable
from django_jobdedup.stores.handler import stores

logger = logging.getLogger("django_jobdedup")

_warned: set[str] = set()


def warn_if_open(task: str, store: str = "") -> None:
    """Log once per task, under DEBUG, that it is dispatched inside an open transaction.

    Not for a transaction of the database in which the store (its alias) keeps calls until the commit.
    """
    if not settings.DEBUG or task in _warned:
        return
    if store and store not in stores:
        return  # an error comes, and nothing takes effect
    kept = durable(store)
    own = kept.using if kept is not None else ""
    for each in connections.all(initialized_only=True):
        if each.in_atomic_block and each.alias != own:
            _warned.add(task)
            logger.warning(
                "%s is dispatched inside an open transaction of database %r: it takes effect at once, before "
                "the commit, and a rollback does not take it back. Write %s instead.",
                task,
                each.alias,
                _instead(task.rpartition(".")[2], each.alias),
                extra={"action": "in_transaction", "task": task},
            )
            return


def _instead(name: str, alias: str) -> str:
    """Celery's own method waits for a commit of the default database alone."""
    if alias == DEFAULT_DB_ALIAS:
        return f"{name}.delay_on_commit(...)"
    return f"transaction.on_commit(partial({name}.delay, ...), using={alias!r})"
