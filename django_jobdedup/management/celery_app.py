"""The project's Celery app, as a command needs it."""

from __future__ import annotations

from typing import Any

from celery import current_app
from celery.loaders.default import Loader as FallbackLoader
from django.core.management.base import CommandError


def loaded_app() -> Any:
    """Return the project's app. Raises CommandError where the project does not load one."""
    if isinstance(current_app.loader, FallbackLoader):
        raise CommandError(
            "No Celery app is loaded, so nothing can be published. Import your app in the __init__.py of the "
            "project's package, as Celery's guide for Django says."
        )
    return current_app
