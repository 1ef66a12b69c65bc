"""The check that asks a Redis whether it forgets locks when memory is short. It connects."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from django_jobdedup.checks.messages import Found, readable, warning
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.results import Unavailable


def check_eviction(**_: object) -> Found:
    """Report Redis stores that evict keys; for ``check --deploy``, where the servers are the real ones."""
    return [message for alias in readable("STORES") or ["default"] for message in _check_store(alias)]


def _check_store(alias: str) -> Found:
    try:
        store = stores[alias]
    except ImproperlyConfigured:
        return []  # reported by check_stores
    policy = store.eviction() if isinstance(store, RedisStore) else ""
    if not policy or isinstance(policy, Unavailable):
        return []
    message = (
        f"The Redis of the store {alias!r} evicts keys when memory is short ({policy}): locks are forgotten."
    )
    hint = (
        "Set maxmemory-policy noeviction there, give the locks a Redis of their own, or keep those that must "
        "not be forgotten in the database store."
    )
    return [warning("W110", message, hint)]
