"""Tasks that run in their caller or in a worker of the same process. ``ran`` notes each start of a body."""

from __future__ import annotations

import threading
from typing import Any

from celery import Task, shared_task
from celery.exceptions import Ignore, Reject

from django_jobdedup import Unique, current_lock, outcome_of
from django_jobdedup.header import HEADER

ran: list[tuple[str, Any]] = []
"""Name and first argument of every body that has started; each test begins with none."""
gate = threading.Event()
"""What ``waiting`` waits for."""


class JobError(Exception):
    """What the failing tasks raise."""


def note(task: Task, key: str) -> None:
    """Note a start. A body in its caller sees no header of ours: there was no message."""
    assert not task.request.is_eager or HEADER not in (task.request.headers or {})
    ran.append((task.name.rpartition(".")[2], key))


@shared_task(bind=True)
def plain(self: Task, key: str) -> str:
    """Run without a policy."""
    note(self, key)
    return key


@shared_task(bind=True, unique=True)
def unique(self: Task, key: str) -> str:
    """Run under the default lock; gives its first argument, so that it can be a step."""
    note(self, key)
    return key


@shared_task(bind=True, unique=Unique("while_executing", key="key"))
def one_at_a_time(self: Task, key: str) -> str:
    """Run one at a time."""
    note(self, key)
    return key


@shared_task(bind=True, unique=Unique("until_expired", ttl=5400))
def nightly(self: Task, key: str) -> str:
    """Run once in ninety minutes."""
    note(self, key)
    return key


@shared_task(bind=True, unique=Unique(lease=1, key="key"))
def holding(self: Task, key: str, seconds: float) -> bool:
    """Take longer than the lease; gives whether the lock was held to the end."""
    lock = current_lock()
    assert lock is not None
    gate.wait(seconds)
    return lock.held


@shared_task(bind=True)
def recursive(self: Task, key: str, deep: int = 1, **options: Any) -> Any:
    """Call itself from its body, ``deep`` times; gives outcome, id and value of the inner call."""
    note(self, key)
    if not deep:
        return "the innermost"
    inner = self.apply_async((key,), {"deep": deep - 1}, unique=self.request.headers["unique"], **options)
    return str(outcome_of(inner)), inner.id, inner.get(disable_sync_subtasks=False)


@shared_task(bind=True, unique=Unique(on_conflict="raise"))
def strict(self: Task, key: str) -> Any:
    """Call itself from its body, where that is an error."""
    note(self, key)
    return strict.delay(key).get(disable_sync_subtasks=False)


@shared_task(bind=True, max_retries=3, unique=True)
def retrying(self: Task, key: str, times: int = 2, throw: bool = True) -> tuple[int, bool]:
    """Retry in ten minutes, *times* times; gives the retries, and whether the lock is held."""
    note(self, key)
    if self.request.retries < times:
        return self.retry(countdown=600, throw=throw)  # type: ignore[no-any-return]
    lock = current_lock()
    return self.request.retries, lock is not None and lock.held


@shared_task(bind=True, autoretry_for=(JobError,), max_retries=2, unique=True)
def exhausting(self: Task, key: str) -> None:
    """Fail, and be tried again by Celery until it gives up."""
    note(self, key)
    raise JobError(key)


@shared_task(bind=True, unique=True)
def replaced(self: Task, key: str) -> Any:
    """Replace itself by another task with a policy, under its own id."""
    note(self, key)
    return self.replace(unique.s(key))


@shared_task(bind=True, unique=True, acks_late=True)
def ending(self: Task, key: str, how: str) -> None:
    """End in one of the ways that are no success."""
    note(self, key)
    raise {
        "error": JobError(key),
        "ignore": Ignore(),
        "reject": Reject("not wanted", requeue=False),
        "requeue": Reject("once more", requeue=True),
        "exit": SystemExit(1),
        "interrupt": KeyboardInterrupt(),
    }[how]


class Unready(Task):
    """A task whose body is never reached."""

    def before_start(self, *_: Any) -> None:
        raise JobError("before the body")


@shared_task(base=Unready, unique=True)
def unready(key: str) -> None:
    """Never run."""


@shared_task(bind=True, unique=True, max_retries=1, retry_on_worker_lost=True)
def lost(self: Task, key: str) -> None:
    """End its process, as a task does that Celery would try again on another worker."""
    raise SystemExit(1)
