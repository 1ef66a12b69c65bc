"""The middleware of ``JOBDEDUP_MIDDLEWARE``, composed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_jobdedup.call import Call, Ending, Execution
from django_jobdedup.conf import conf
from django_jobdedup.middleware.base import Dispatch, Middleware


@cache
def middleware() -> tuple[Middleware, ...]:
    """Return the instances, outermost first.

    Raises ImproperlyConfigured for a path that is no middleware.
    """
    return tuple(_load(path) for path in conf.MIDDLEWARE)


def _load(path: str) -> Middleware:
    try:
        loaded = import_string(path)()
    except ImportError as error:
        raise ImproperlyConfigured(f"JOBDEDUP_MIDDLEWARE: cannot import {path!r}: {error}.") from error
    if not isinstance(loaded, Middleware):
        raise ImproperlyConfigured(
            f"JOBDEDUP_MIDDLEWARE: {path!r} must subclass django_jobdedup.middleware.base.Middleware."
        )
    return loaded


@cache
def counts_in_store() -> bool:
    """Say whether a middleware wants the store to count its decisions."""
    return any(layer.counts_in_store for layer in middleware())


@cache
def locks() -> bool:
    """Say whether a middleware takes seats and gives them back."""
    return any(layer.locks for layer in middleware())


def dispatch(calls: Sequence[Call], publish: Callable[[Sequence[Call]], list[Dispatch]]) -> list[Dispatch]:
    """Pass calls through all middleware down to ``publish``.

    Raises ImproperlyConfigured for a middleware that does not answer every call.
    """
    chain = publish
    for layer in reversed(middleware()):
        chain = partial(_through, layer, chain)
    return chain(calls)


def dispatch_inside(
    calls: Sequence[Call], publish: Callable[[Sequence[Call]], list[Dispatch]]
) -> list[Dispatch]:
    """Pass calls that were kept before through the layers inside the one that locks."""
    chain = publish
    for layer in reversed(middleware()):
        if layer.locks:
            break
        chain = partial(_through, layer, chain)
    return chain(calls)


def _through(
    layer: Middleware, call_next: Callable[[Sequence[Call]], list[Dispatch]], calls: Sequence[Call]
) -> list[Dispatch]:
    done = layer.dispatch(calls, call_next)
    if len(done) != len(calls):
        raise ImproperlyConfigured(
            f"{type(layer).__module__}.{type(layer).__qualname__}.dispatch() answered {len(done)} of "
            f"{len(calls)} calls: return one Dispatch a call, in order."
        )
    return done


def execute(execution: Execution, body: Callable[[Execution], Any]) -> Any:
    """Pass an execution through all middleware down to its body."""
    chain = body
    for layer in reversed(middleware()):
        chain = partial(layer.execute, call_next=chain)
    return chain(execution)


def ended(ending: Ending) -> None:
    """Tell all middleware of an end, innermost first."""
    for layer in reversed(middleware()):
        layer.ended(ending)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "JOBDEDUP_MIDDLEWARE":
        middleware.cache_clear()
        counts_in_store.cache_clear()
        locks.cache_clear()


setting_changed.connect(_forget, dispatch_uid="jobdedup.middleware")
