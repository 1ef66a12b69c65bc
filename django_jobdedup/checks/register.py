"""All checks, registered under the tag ``jobdedup``.

The checks of settings, middleware and stores are cheap: they connect to nothing, and every command
runs them. The one that looks for tables runs where Django asks databases: ``check --database``. The tasks
are looked at by ``manage.py check`` only, because that imports their modules. What connects to Redis runs
under ``check --deploy``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from django.core import checks

from django_jobdedup.checks.eager import check_eager
from django_jobdedup.checks.eviction import check_eviction
from django_jobdedup.checks.messages import TAG
from django_jobdedup.checks.middleware import check_middleware
from django_jobdedup.checks.settings import (
    check_default_options,
    check_scope,
    check_setting_names,
    check_settings,
    check_task_settings,
)
from django_jobdedup.checks.stores import check_stores, check_tables
from django_jobdedup.checks.tasks import check_tasks

CHECKS: Final[tuple[Callable[..., Iterable[checks.CheckMessage]], ...]] = (
    check_settings,
    check_setting_names,
    check_task_settings,
    check_default_options,
    check_scope,
    check_middleware,
    check_stores,
    check_tables,
    check_eager,
    check_tasks,
    check_eviction,
)


def register_checks() -> None:
    """Register every check; safe to call again."""
    for check in CHECKS:
        tags = [TAG, checks.Tags.database] if check is check_tables else [TAG]
        checks.register(check, *tags, deploy=check is check_eviction)
