"""The Celery app of a stored call: whoever publishes it later may know several."""

from __future__ import annotations

from typing import Any

from celery import current_app
from celery._state import _get_active_apps  # type: ignore[attr-defined]

from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.stored_call.codec import head_of


def app_named(name: str) -> Any:
    """Return the app of this process with that ``main`` name; the current one where there is none."""
    here: Any = current_app._get_current_object()  # type: ignore[attr-defined]
    if not name or here.main == name:
        return here
    return next((app for app in _get_active_apps() if app.main == name), here)


def app_of_stored(stored: bytes) -> Any:
    """Return the app that a stored call belongs to; the current one where it cannot be read."""
    try:
        return app_named(head_of(stored)[0].notes.app)
    except StoredCallError:
        return app_named("")
