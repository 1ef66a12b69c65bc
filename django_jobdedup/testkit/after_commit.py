"""Calls that wait for a commit: ``delay_on_commit`` in a test whose transaction never commits.

Django keeps the callbacks of a transaction, also those that ``captureOnCommitCallbacks(execute=True)``
has called; so each call is noted when it is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Final

from celery import Task
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

#: The methods of a task that a callback may call.
CALLING: Final = ("delay", "apply_async")
_ASYNC: Final = inspect.signature(lambda args=None, kwargs=None, **options: None)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """One call that waits for the commit of a transaction on the database ``using``."""

    task: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    using: str = "default"


class _Noted(partial[Any]):
    """The same partial, which knows whether it was called."""

    called = False

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        self.called = True
        return super().__call__(*args, **kwargs)


@contextmanager
def noting() -> Iterator[None]:
    """Note the calls that are given to ``transaction.on_commit`` within the block."""
    original = BaseDatabaseWrapper.on_commit

    @wraps(original)
    def on_commit(self: Any, func: Callable[[], Any], *args: Any, **kwargs: Any) -> None:
        original(self, _noted(func), *args, **kwargs)

    BaseDatabaseWrapper.on_commit = on_commit  # type: ignore[method-assign]
    try:
        yield
    finally:
        BaseDatabaseWrapper.on_commit = original  # type: ignore[method-assign]


def _noted(func: Callable[[], Any]) -> Callable[[], Any]:
    """Return the callback, noted if it calls a task: Celery's ``delay_on_commit`` makes such partials."""
    if not isinstance(func, partial) or isinstance(func, _Noted):
        return func
    method = func.func
    calls = isinstance(getattr(method, "__self__", None), Task) and method.__name__ in CALLING
    return _Noted(method, *func.args, **func.keywords) if calls else func


def pending() -> Iterator[PendingCall]:
    """Go over the noted calls that open transactions still keep, and that nobody has made."""
    for connection in connections.all(initialized_only=True):
        for _, func, *_ in connection.run_on_commit:
            if isinstance(func, _Noted) and not func.called:
                yield _pending(func, connection.alias)


def _pending(noted: _Noted, using: str) -> PendingCall:
    method: Any = noted.func
    if method.__name__ == "delay":
        args, kwargs = noted.args, noted.keywords
    else:
        given = _ASYNC.bind(*noted.args[:2], **noted.keywords).arguments
        args, kwargs = given.get("args") or (), given.get("kwargs") or {}
    return PendingCall(method.__self__.name, tuple(args), dict(kwargs), using)
