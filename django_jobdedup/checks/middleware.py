"""The check of ``JOBDEDUP_MIDDLEWARE``."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from django_jobdedup.checks.messages import Found, error, readable, warning
from django_jobdedup.middleware.base import Middleware
from django_jobdedup.middleware.locking import LockingMiddleware


def check_middleware(**_: Any) -> Found:
    """Report paths that are no middleware, and a list without the locking one."""
    found: Found = []
    loaded: list[object] = []
    for path in readable("MIDDLEWARE"):
        try:
            loaded.append(import_string(path))
        except ImportError as wrong:
            found.append(error("E105", f"JOBDEDUP_MIDDLEWARE: cannot import {path!r}: {wrong}."))
            continue
        if not _is_a(loaded[-1], Middleware):
            hint = "Subclass django_jobdedup.middleware.base.Middleware."
            found.append(error("E105", f"JOBDEDUP_MIDDLEWARE: {path!r} is no middleware.", hint))
    if not found and not any(_is_a(each, LockingMiddleware) for each in loaded):
        hint = "Add 'django_jobdedup.middleware.locking.LockingMiddleware' to JOBDEDUP_MIDDLEWARE."
        found.append(
            warning("W101", "JOBDEDUP_MIDDLEWARE has no locking middleware: nothing is locked.", hint)
        )
    return found


def _is_a(value: object, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base)
