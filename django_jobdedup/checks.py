"""System checks, tag ``jobdedup``, each with an id of its own.

The checks of settings, middleware and stores are cheap: they connect to nothing, and every command
runs them. The tasks are looked at by ``manage.py check`` only, because that imports their modules.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, Final

from celery import current_app
from celery.loaders.default import Loader as FallbackLoader
from django.conf import settings
from django.core import checks
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.core.management.commands.check import Command as CheckCommand
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache

from django_jobdedup.conf import SETTINGS, conf
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.middleware.base import Middleware
from django_jobdedup.middleware.locking import LockingMiddleware
from django_jobdedup.policies.layers import Layers, check_defaults
from django_jobdedup.policies.options import check_options
from django_jobdedup.policies.resolve import check_against, policy_of, refuse_unbuilt, settings_entry
from django_jobdedup.policies.unique import MARK, Unique
from django_jobdedup.stores.handler import stores

TAG: Final = "jobdedup"
Found = list[checks.CheckMessage]

#: Setting to the id of the check of its value. Ids are silenced in projects: never use one again.
SETTING_IDS: Final = {
    "MODE": "E001",
    "STORES": "E002",
    "NAMESPACE": "E003",
    "SCOPE": "E004",
    "TASKS": "E005",
    "DEFAULTS": "E006",
    "MIDDLEWARE": "E007",
    "REQUIRE_WORKER": "E008",
    "CONFIRM_WITHIN": "E009",
    "SHARDS": "E010",
    "GRACE": "E011",
    "FINGERPRINT_SECRET": "E012",
}
#: The other checks: id to what is wrong.
OTHER_IDS: Final = {
    "E101": "`JOBDEDUP_TASKS` holds something that is no policy.",
    "E102": "`JOBDEDUP_DEFAULTS` holds something that is no option.",
    "E103": "A task has a policy that cannot work.",
    "E104": "A task module cannot be imported.",
    "E105": "A path in `JOBDEDUP_MIDDLEWARE` is no middleware.",
    "E106": "`JOBDEDUP_SCOPE` is no function without arguments.",
    "E107": "There is no Redis for the locks.",
    "E108": "An alias in `JOBDEDUP_STORES` is no store.",
    "E109": "A task names a store that does not exist.",
    "W101": "The locking middleware is missing: nothing is locked.",
    "W102": "The locks share the `default` cache.",
    "W103": "The memory store is in use although `DEBUG` is off.",
    "W104": "No Celery app is loaded, so no task was checked.",
}


#: Held while the tasks are looked at: importing them, Celery's Django fixup runs all checks again.
_looking: Final = threading.Lock()


def check_settings(**_: Any) -> Found:
    """Report each setting with a wrong value."""
    found: Found = []
    for setting in SETTINGS:
        try:
            setting.value()
        except ImproperlyConfigured as error:
            found.append(_error(SETTING_IDS[setting.name], str(error), f"Default: {setting.default!r}."))
    return found


def check_task_settings(**_: Any) -> Found:
    """Report entries of ``JOBDEDUP_TASKS`` that are no policies; pairs are checked with the tasks."""
    found: Found = []
    for pattern, entry in _readable("TASKS").items():
        try:
            said = settings_entry(pattern, {pattern: entry})[1]
            where = f"JOBDEDUP_TASKS[{pattern!r}]"
            Layers().over(said, where)
            if isinstance(said, Mapping) and MARK not in said:
                check_options(said, where)
        except PolicyError as error:
            found.append(_error("E101", str(error)))
    return found


def check_default_options(**_: Any) -> Found:
    """Report options in ``JOBDEDUP_DEFAULTS`` that do not exist or cannot be defaults."""
    try:
        check_defaults(_readable("DEFAULTS"))
        check_options(_readable("DEFAULTS"), "JOBDEDUP_DEFAULTS")
    except PolicyError as error:
        return [_error("E102", str(error))]
    return []


def check_scope(**_: Any) -> Found:
    """Report a ``JOBDEDUP_SCOPE`` that cannot be called without arguments."""
    scope = _readable("SCOPE")
    try:
        function = import_string(scope) if isinstance(scope, str) else scope
        inspect.signature(function).bind()
    except ValueError:  # a builtin that does not tell its signature
        return []
    except (ImportError, TypeError) as error:
        hint = "Write a function without arguments, or its dotted path, that returns the tenant."
        return [_error("E106", f"JOBDEDUP_SCOPE {scope!r} cannot be used: {error}.", hint)]
    return []


def check_middleware(**_: Any) -> Found:
    """Report paths that are no middleware, and a list without the locking one."""
    found: Found = []
    loaded: list[object] = []
    for path in _readable("MIDDLEWARE"):
        try:
            loaded.append(import_string(path))
        except ImportError as error:
            found.append(_error("E105", f"JOBDEDUP_MIDDLEWARE: cannot import {path!r}: {error}."))
            continue
        if not _is_a(loaded[-1], Middleware):
            hint = "Subclass django_jobdedup.middleware.base.Middleware."
            found.append(_error("E105", f"JOBDEDUP_MIDDLEWARE: {path!r} is no middleware.", hint))
    if not found and not any(_is_a(each, LockingMiddleware) for each in loaded):
        hint = "Add 'django_jobdedup.middleware.locking.LockingMiddleware' to JOBDEDUP_MIDDLEWARE."
        found.append(
            _warning("W101", "JOBDEDUP_MIDDLEWARE has no locking middleware: nothing is locked.", hint)
        )
    return found


def check_stores(**_: Any) -> Found:
    """Report stores that cannot be used, and those that forget locks."""
    aliases = _readable("STORES")
    if not aliases:
        return _check_cache()
    return [message for alias in aliases for message in _check_store(alias)]


def _check_cache() -> Found:
    hint = (
        "Add to CACHES: 'jobdedup': {'BACKEND': 'django_redis.cache.RedisCache', 'LOCATION': 'redis://...'}, "
        "a database that no cache.clear() flushes and no eviction policy empties; or set JOBDEDUP_STORES."
    )
    if _is_redis("jobdedup"):
        return []
    if _is_redis("default"):
        message = "The locks share the 'default' cache: its clear() frees them, its eviction forgets them."
        return [_warning("W102", message, hint)]
    return [
        _error("E107", "There is no Redis for the locks: no cache alias is served by django-redis.", hint)
    ]


def _is_redis(alias: str) -> bool:
    try:
        return isinstance(caches[alias], RedisCache)
    except ImproperlyConfigured:  # no such alias, or a backend that Django cannot import
        return False


def _check_store(alias: str) -> Found:
    from django_jobdedup.stores.memory import MemoryStore

    try:
        store = stores[alias]
    except ImproperlyConfigured as error:
        return [_error("E108", str(error))]
    if isinstance(store, MemoryStore) and not settings.DEBUG:
        message = f"JOBDEDUP_STORES[{alias!r}] is the memory store, which other processes do not see."
        return [_warning("W103", message, "Use it in tests only; write a Redis store for everything else.")]
    return []


def check_tasks(**_: Any) -> Found:
    """Report tasks whose policy cannot work; imports the task modules, so only for ``manage.py check``."""
    if not _asked_by_check() or not _looking.acquire(blocking=False):
        return []
    try:
        return list(_check_current_app())
    finally:
        _looking.release()


def _asked_by_check() -> bool:
    """Say whether the command ``check`` runs; Django tells a check neither command nor tags."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not isinstance(frame.f_locals.get("self"), CheckCommand):
        frame = frame.f_back
    return frame is not None


def _check_current_app() -> Iterator[checks.CheckMessage]:
    if isinstance(current_app.loader, FallbackLoader):
        hint = "Import your Celery app in the __init__.py of the project's package, as Celery's guide says."
        yield _warning("W104", "No Celery app is loaded, so no task was checked.", hint)
        return
    try:
        current_app.loader.import_default_modules()
        tasks = dict(current_app.tasks)
    except Exception as error:
        yield _error("E104", f"The task modules cannot be imported: {type(error).__name__}: {error}")
        return
    for name, task in sorted(tasks.items()):
        if not name.startswith("celery."):
            yield from _check_task(name, task)


def _check_task(name: str, task: Any) -> Iterator[checks.CheckMessage]:
    try:
        refuse_unbuilt(name, task, {})
        policy = policy_of(name, getattr(task, "unique", None))
        if isinstance(policy, Unique):
            check_against(policy, task.run, name)
    except PolicyError as error:
        yield _error("E103", str(error))
        return
    except ImproperlyConfigured:  # reported by check_settings
        return
    if isinstance(policy, Unique):
        yield from _check_alias(name, policy.store)


def _check_alias(name: str, alias: str) -> Iterator[checks.CheckMessage]:
    known = list(_readable("STORES")) or ["default"]
    if alias not in known:
        message = f"task {name!r} names the store {alias!r}, which JOBDEDUP_STORES does not have."
        yield _error("E109", message, f"Known stores: {', '.join(known)}.")


CHECKS: Final[tuple[Callable[..., Iterable[checks.CheckMessage]], ...]] = (
    check_settings,
    check_task_settings,
    check_default_options,
    check_scope,
    check_middleware,
    check_stores,
    check_tasks,
)


def register_checks() -> None:
    """Register every check under the tag ``jobdedup``; safe to call again."""
    for check in CHECKS:
        checks.register(check, TAG)


def _readable(name: str) -> Any:
    """Return a setting, or its default where the value is reported by ``check_settings``."""
    try:
        return getattr(conf, name)
    except ImproperlyConfigured:
        return next(setting.default for setting in SETTINGS if setting.name == name)


def _is_a(value: object, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base)


def _error(number: str, message: str, hint: str | None = None) -> checks.CheckMessage:
    return checks.Error(message, hint=hint, id=f"jobdedup.{number}")


def _warning(number: str, message: str, hint: str | None = None) -> checks.CheckMessage:
    return checks.Warning(message, hint=hint, id=f"jobdedup.{number}")
