"""The check of the lock stores. It connects to nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from django_jobdedup.checks.messages import Found, error, in_tests, readable, warning
from django_jobdedup.stores.handler import stores, unfit_alias
from django_jobdedup.stores.redis.cache_alias import is_redis

HINT: Final = (
    "Write in CACHES: 'jobdedup': {'BACKEND': 'django_redis.cache.RedisCache', 'LOCATION': 'redis://...'}, "
    "a database that no cache.clear() flushes and no eviction policy empties; or set JOBDEDUP_STORES."
)


def check_stores(**_: Any) -> Found:
    """Report stores that cannot be used, and those that forget locks."""
    aliases = readable("STORES")
    if not aliases:
        return _check_cache()
    return [message for alias in aliases for message in _check_store(alias)]


def _check_cache() -> Found:
    if is_redis("jobdedup"):
        return []
    unfit = unfit_alias()
    if is_redis("default"):
        message = "The locks share the 'default' cache: its clear() frees them, its eviction forgets them."
        return [warning("W102", unfit + message, HINT)]
    message = "There is no Redis for the locks: no cache alias is served by django-redis."
    return [error("E107", unfit.strip() or message, HINT)]


def _check_store(alias: str) -> Found:
    from django_jobdedup.stores.database.store import DatabaseStore
    from django_jobdedup.stores.memory import MemoryStore

    try:
        store = stores[alias]
        if isinstance(store, DatabaseStore):
            store.check_engine()
    except ImproperlyConfigured as wrong:
        return [error("E108", str(wrong))]
    if isinstance(store, MemoryStore) and not settings.DEBUG and not in_tests():
        message = f"JOBDEDUP_STORES[{alias!r}] is the memory store, which other processes do not see."
        return [warning("W103", message, "Use it in tests only; write a Redis store for everything else.")]
    return []


def check_tables(databases: Sequence[str] | None = None, **_: Any) -> Found:
    """Report a database store whose tables are missing, where the command may ask the database."""
    # ``migrate`` runs this check before it makes the tables.
    if not databases or sys.argv[1:2] == ["migrate"]:
        return []
    found = [message for alias in readable("STORES") for message in _check_tables(alias, databases)]
    return found or _check_dead_jobs(databases)


def _check_dead_jobs(databases: Sequence[str]) -> Found:
    """Dead jobs are rows, whatever store their locks live in."""
    from django_jobdedup.models import JobIntent

    using = router.db_for_write(JobIntent)
    if using not in databases:
        return []
    connection = connections[using]
    with connection.cursor() as cursor:
        if JobIntent._meta.db_table in connection.introspection.table_names(cursor):
            return []
    message = f"The tables of dead jobs are missing in {using!r}: a job that is rejected cannot be kept."
    return [warning("W108", message, f"Run: manage.py migrate jobdedup --database {using}")]


def _check_tables(alias: str, databases: Sequence[str]) -> Found:
    from django_jobdedup.stores.database.store import DatabaseStore

    try:
        store = stores[alias]
    except ImproperlyConfigured:
        return []  # reported by check_stores
    if not isinstance(store, DatabaseStore) or store.using not in databases or store.has_tables():
        return []
    message = f"JOBDEDUP_STORES[{alias!r}]: the tables of the lock store are missing in {store.using!r}."
    return [warning("W108", message, f"Run: manage.py migrate jobdedup --database {store.using}")]
