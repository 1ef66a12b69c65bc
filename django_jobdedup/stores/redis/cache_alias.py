"""The cache alias behind a Redis store: whether django-redis serves it, and what to write if not."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

REDIS_CACHE: Final = "django_redis.cache.RedisCache"


def is_redis(alias: str) -> bool:
    """Say whether a cache alias is one of django-redis, subclasses included."""
    try:
        found, redis_cache = import_string(backend_of(alias)), import_string(REDIS_CACHE)
    except ImportError:
        return False
    return isinstance(found, type) and issubclass(found, redis_cache)


def backend_of(alias: str) -> str:
    """Return the dotted path behind a cache alias; empty where there is no such alias."""
    return str(settings.CACHES.get(alias, {}).get("BACKEND", ""))


def example(alias: str) -> str:
    """Return the entry of ``CACHES`` to write for an alias."""
    return f'"{alias}": {{"BACKEND": "{REDIS_CACHE}", "LOCATION": "redis://127.0.0.1:6379/1"}}'


def check_location(store: str, location: object) -> None:
    """Refuse a ``LOCATION`` that is no cache alias of django-redis.

    Raises ImproperlyConfigured, which names the setting and says what to write.
    """
    where = f'JOBDEDUP_STORES[{store!r}]["LOCATION"]'
    if not isinstance(location, str) or location not in settings.CACHES:
        known = ", ".join(repr(alias) for alias in settings.CACHES if is_redis(alias)) or "none yet"
        raise ImproperlyConfigured(
            f"{where} is {location!r}, which is no cache alias. Write an alias of CACHES that django-redis "
            f"serves ({known}), or add one: {example('jobdedup')}."
        )
    if not is_redis(location):
        raise ImproperlyConfigured(
            f"{where} is the cache alias {location!r}, whose BACKEND is {backend_of(location)!r}; locks need "
            f"django-redis. Write in CACHES: {example(location)}."
        )
