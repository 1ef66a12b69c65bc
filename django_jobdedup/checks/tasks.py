"""The check of the tasks' policies. It imports the task modules, so only ``manage.py check`` runs it."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import FrameType
from typing import Any, Final

from celery import current_app
from celery.loaders.default import Loader as FallbackLoader
from django.core import checks
from django.core.management.commands.check import Command as CheckCommand

from django_jobdedup.checks.messages import Found, error, readable, warning
from django_jobdedup.checks.schedule import check_schedule
from django_jobdedup.checks.settings import wrong_defaults, wrong_entries
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.middleware.visibility import check_wait
from django_jobdedup.policies.resolve import check_against, refuse_unbuilt, resolve, settings_entry
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.handler import NO_DEFAULT

#: Held while the tasks are looked at: importing them, Celery's Django fixup runs all checks again.
_looking: Final = threading.Lock()


def check_tasks(databases: Sequence[str] | None = None, **_: Any) -> Found:
    """Report tasks whose policy cannot work, and settings and schedules for tasks that do not exist."""
    if not _asked_by_check() or not _looking.acquire(blocking=False):
        return []
    try:
        return list(_check_current_app(databases))
    finally:
        _looking.release()


def _asked_by_check() -> bool:
    """Say whether the command ``check`` runs; Django tells a check neither command nor tags."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not isinstance(frame.f_locals.get("self"), CheckCommand):
        frame = frame.f_back
    return frame is not None


def _check_current_app(databases: Sequence[str] | None) -> Iterator[checks.CheckMessage]:
    if isinstance(current_app.loader, FallbackLoader):
        hint = "Import your Celery app in the __init__.py of the project's package, as Celery's guide says."
        yield warning("W104", "No Celery app is loaded, so no task was checked.", hint)
        return
    try:
        current_app.loader.import_default_modules()
        tasks = {name: task for name, task in current_app.tasks.items() if not name.startswith("celery.")}
    except Exception as wrong:
        where = traceback.extract_tb(wrong.__traceback__)[-1]
        yield error(
            "E104",
            f"The task modules cannot be imported: {type(wrong).__name__}: {wrong} "
            f"({where.filename}, line {where.lineno})",
        )
        return
    yield from _check_policies(tasks)
    yield from _check_keys(tasks)
    yield from check_schedule(current_app, tasks, databases)


def _check_policies(tasks: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    """Without what is reported once already: else every task would repeat it."""
    entries, wrong, no_defaults = readable("TASKS"), wrong_entries(), wrong_defaults()
    empty: dict[str, Any] = {pattern: {} for pattern in entries}
    defaults = {name: value for name, value in readable("DEFAULTS").items() if name not in no_defaults}
    for name, task in sorted(tasks.items()):
        if settings_entry(name, empty)[0] not in wrong:
            yield from _check_task(name, task, entries, defaults)


def _check_task(
    name: str, task: Any, entries: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[checks.CheckMessage]:
    try:
        refuse_unbuilt(name, task, {})
        policy = resolve(name, getattr(task, "unique", None), tasks=entries, defaults=defaults)
        if isinstance(policy, Unique):
            check_against(policy, task.run, name)
            check_wait(policy, task.app, name)
    except PolicyError as wrong:
        yield error("E103", str(wrong))
        return
    if isinstance(policy, Unique):
        yield from _check_alias(name, policy.store)


def _check_alias(name: str, alias: str) -> Iterator[checks.CheckMessage]:
    known = list(readable("STORES")) or ["default"]
    if alias not in known:
        message = f"task {name!r} names the store {alias!r}, which JOBDEDUP_STORES does not have."
        missing = f" {NO_DEFAULT}" if alias == "default" else ""
        yield error("E109", message, f"Known stores: {', '.join(known)}.{missing}")


def _check_keys(tasks: Collection[str]) -> Iterator[checks.CheckMessage]:
    for pattern in readable("TASKS"):
        if not any(name == pattern or fnmatchcase(name, pattern) for name in tasks):
            close = get_close_matches(pattern, tasks, n=1)
            meant = f"Did you mean {close[0]!r}? " if close else ""
            hint = "If it is for a task of other workers, sent by name, silence this warning."
            yield warning("W106", f"JOBDEDUP_TASKS[{pattern!r}] matches no task.", meant + hint)
