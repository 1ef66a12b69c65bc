"""A worker does not start with settings or policies that cannot work.

It would fail every job that it takes, and leave their locks behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_jobdedup.conf import SETTINGS, conf
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.middleware.stack import middleware
from django_jobdedup.middleware.visibility import check_wait
from django_jobdedup.policies.resolve import check_against, policy_of, refuse_unbuilt
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.memory import MemoryStore


def check_startup(app: Any, *, embedded: bool = False) -> None:
    """Refuse what cannot work, all in one message. Raises SystemExit.

    ``embedded``: the worker runs inside the process of a test, so its calls may come from there.
    """
    wrong = list(dict.fromkeys(_settings())) or list(dict.fromkeys(_tasks(app)))
    if not (wrong or embedded):
        wrong = list(_memory_stores())
    if wrong:
        lines = "\n  ".join(wrong)
        raise SystemExit(f"django_jobdedup: this worker does not start:\n  {lines}")


def _settings() -> Iterator[str]:
    """The sentences of wrong settings, middleware and stores; with these no task can be judged."""
    for setting in SETTINGS:
        yield from _sentence(setting.value)
    yield from _sentence(middleware)
    yield from _sentence(_check_stores)


def _tasks(app: Any) -> Iterator[str]:
    """The sentences of wrong policies, and of stores that they need."""
    for name in sorted(app.tasks):
        if not name.startswith("celery."):
            yield from _sentence(partial(_check_task, name, app.tasks[name]))


def _check_stores() -> None:
    """Make every store that is configured; a project without one may have no unique task."""
    if conf.STORES:
        stores.all()


def _memory_stores() -> Iterator[str]:
    """The sentences of stores that no sender shares with a worker, which is a process of its own."""
    for alias in conf.STORES:
        if isinstance(stores[alias], MemoryStore):
            yield (
                f"JOBDEDUP_STORES[{alias!r}] is the memory store, which serves one process only: this worker "
                "would not see what senders lock. Name a Redis or a database store, or start the worker "
                "inside the test with celery.contrib.testing.worker.start_worker()."
            )


def _check_task(name: str, task: Any) -> None:
    refuse_unbuilt(name, task, {})
    policy = policy_of(name, getattr(task, "unique", None))
    if isinstance(policy, Unique):
        check_against(policy, task.run, name)
        check_wait(policy, task.app, name)
        stores[policy.store]


def _sentence(step: Callable[[], Any]) -> Iterator[str]:
    try:
        step()
    except (PolicyError, ImproperlyConfigured) as error:
        yield str(error)
