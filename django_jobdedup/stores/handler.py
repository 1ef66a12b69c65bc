"""Lock stores by alias, as ``JOBDEDUP_STORES`` names them: ``stores["default"]``.

Without the setting there is one store, on the django-redis cache alias ``jobdedup``, else ``default``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from django.apps import apps
from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_jobdedup.conf import conf
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.redis.cache_alias import backend_of, is_redis
from django_jobdedup.suggestion import suggest

logger = logging.getLogger("django_jobdedup")

REDIS_STORE: Final = "django_jobdedup.stores.redis.store.RedisStore"
DATABASE_STORE: Final = "django_jobdedup.stores.database.store.DatabaseStore"
BACKENDS: Final = (REDIS_STORE, DATABASE_STORE, "django_jobdedup.stores.memory.MemoryStore")

NO_STORE: Final = (
    "django_jobdedup has no lock store. Add a Redis cache alias for it:\n\n"
    "    CACHES = {\n"
    "        ...,\n"
    '        "jobdedup": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:6379/1"},\n'
    "    }\n\n"
    "or, in the tests of one process:\n\n"
    '    JOBDEDUP_STORES = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}'
)
SHARED_CACHE: Final = (
    'Locks are kept in the cache alias "default": its clear() deletes every lock and eviction forgets locks. '
    'Add a cache alias "jobdedup" with a Redis database of its own and maxmemory-policy noeviction.'
)


#: What to write where the store is missing that every policy has.
NO_DEFAULT: Final = (
    'JOBDEDUP_STORES stands in the place of the store that is there without it: add "default": {"BACKEND": '
    f'"{REDIS_STORE}", "LOCATION": "jobdedup"}}, which policies use that name no other.'
)


class StoreHandler:
    """The stores of this process by alias, each made at first use and shared by all threads."""

    def __init__(self) -> None:
        self._stores: dict[str, Store] = {}
        self._warned = False
        self._keep: bool | None = None

    def __getitem__(self, alias: str) -> Store:
        """Return the store; raises ImproperlyConfigured, saying what to write, if there is none."""
        store = self._stores.get(alias)
        if store is None:
            store = self._stores.setdefault(alias, self._make(alias))
        return store

    def __contains__(self, alias: object) -> bool:
        return alias in self._configured()

    def __iter__(self) -> Iterator[str]:
        """Go over the aliases."""
        return iter(self._configured())

    def all(self) -> list[Store]:
        """Return every store."""
        return [self[alias] for alias in self]

    @property
    def keep_calls(self) -> bool:
        """Say whether any store keeps whole calls: a look at the settings, once."""
        if self._keep is None:
            found = any(map(_is_durable, conf.STORES.values()))
            if not found and not apps.models_ready:
                return False  # perhaps django.setup() comes later
            self._keep = found
        return self._keep

    def reset(self) -> None:
        """Close and forget every store, so that the next use reads the settings anew."""
        self._keep = None
        known, self._stores = self._stores, {}
        for store in known.values():
            store.close()

    def _make(self, alias: str) -> Store:
        configured = self._configured()
        if alias not in configured:
            raise ImproperlyConfigured(
                f"There is no lock store {alias!r}: add it to JOBDEDUP_STORES, or use one that is there; "
                f"{suggest(alias, configured)}{f' {NO_DEFAULT}' if alias == 'default' else ''}"
            )
        options = configured[alias]
        _check(alias, options)
        made = _backend(alias, options)(alias, options.get("LOCATION", ""), options.get("OPTIONS", {}))
        if not isinstance(made, Store):
            raise ImproperlyConfigured(
                f"JOBDEDUP_STORES[{alias!r}]: BACKEND {options['BACKEND']} is not a "
                "django_jobdedup.stores.base.Store."
            )
        return made

    def _configured(self) -> Mapping[str, Any]:
        return conf.STORES or {"default": {"BACKEND": REDIS_STORE, "LOCATION": self._cache_alias()}}

    def _cache_alias(self) -> str:
        if is_redis("jobdedup"):
            return "jobdedup"
        if not is_redis("default"):
            raise ImproperlyConfigured(unfit_alias() + NO_STORE)
        if not self._warned:
            self._warned = True
            logger.warning(unfit_alias() + SHARED_CACHE)
        return "default"


def unfit_alias() -> str:
    """Return a sentence about a cache alias ``jobdedup`` that django-redis does not serve, else nothing."""
    backend = backend_of("jobdedup")
    if not backend or is_redis("jobdedup"):
        return ""
    return (
        f'The cache alias "jobdedup" cannot keep locks: its BACKEND is {backend!r}, and they need '
        "'django_redis.cache.RedisCache'. "
    )


KNOWN: Final = ("BACKEND", "LOCATION", "OPTIONS")


def _is_durable(options: Any) -> bool:
    """Whether a backend is durable; one that cannot be read, or has no app, says so at its first use."""
    try:
        return bool(import_string(options["BACKEND"]).durable)
    except (AppRegistryNotReady, AttributeError, ImportError, KeyError, TypeError, RuntimeError):
        return False


def _check(alias: str, options: Any) -> None:
    where = f"JOBDEDUP_STORES[{alias!r}]"
    if not isinstance(options, Mapping) or not isinstance(options.get("BACKEND"), str):
        raise ImproperlyConfigured(
            f'{where} needs a dict with "BACKEND": {REDIS_STORE!r}, or {DATABASE_STORE!r}.'
        )
    unknown = set(options) - set(KNOWN)
    if unknown:
        raise ImproperlyConfigured(
            f"{where}: unknown keys {', '.join(sorted(map(str, unknown)))}; use {', '.join(KNOWN)}."
        )


def _backend(alias: str, options: Mapping[str, Any]) -> Any:
    try:
        return import_string(options["BACKEND"])
    except AppRegistryNotReady as error:
        raise ImproperlyConfigured(
            f"JOBDEDUP_STORES[{alias!r}] keeps its locks in the database: call django.setup() first."
        ) from error
    except ImportError as error:
        raise ImproperlyConfigured(
            f"JOBDEDUP_STORES[{alias!r}]: BACKEND {options['BACKEND']!r} cannot be imported: {error}."
            f"{_meant(options['BACKEND'])}"
        ) from error


def _meant(path: str) -> str:
    """Ask for the built-in store of that class, or of a similar path."""
    name = path.rpartition(".")[2]
    same = [each for each in BACKENDS if each.rpartition(".")[2] == name]
    found = same or get_close_matches(path, BACKENDS, n=1)
    return f" Did you mean {found[0]!r}?" if found else f" Built in are {', '.join(map(repr, BACKENDS))}."


#: The stores of this process.
stores = StoreHandler()


def _reset(*, setting: str, **_: Any) -> None:
    if setting == "CACHES" or setting.startswith("JOBDEDUP_"):
        stores.reset()


setting_changed.connect(_reset, dispatch_uid="jobdedup.stores")
