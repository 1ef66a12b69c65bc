"""The check of Celery's always-eager mode. It connects to nothing."""

from __future__ import annotations

from typing import Any, Final

from celery import current_app
from celery.loaders.default import Loader as FallbackLoader
from django.conf import settings

from django_jobdedup.checks.messages import Found, in_tests, warning

HINT: Final = (
    "Take task_always_eager (CELERY_TASK_ALWAYS_EAGER) out of the settings that are deployed: every call "
    "blocks its caller until the task has run. It is for tests."
)


def check_eager(**_: Any) -> Found:
    """Warn where every call runs in its caller although ``DEBUG`` is off."""
    if settings.DEBUG or in_tests() or isinstance(current_app.loader, FallbackLoader):
        return []
    if not current_app.conf.task_always_eager:
        return []
    return [warning("W107", "Celery's task_always_eager is on although DEBUG is off.", HINT)]
