"""The tasks of those that are woken: what is put off sleeps for a minute."""

from __future__ import annotations

import os
import signal
from typing import Any

import redis
from celery import Task, shared_task
from django.conf import settings

from django_jobdedup import Reschedule
from tests.jobs.tasks import unique
from tests.rig.journal import recorded, writer

MODULE = "tests.executing.waking_tasks"
MINUTE = Reschedule(after=60)


def go(client: redis.Redis, namespace: str, key: str) -> None:
    """Let those go that run first."""
    client.set(f"{namespace}:go:{key}", 1, ex=600)


def run(task: Task, key: str, value: int, first: int = 1) -> int:
    """Take a moment, or, if among the first, until all are there; give the value."""
    client = writer(settings.JOURNAL_URL, os.getpid())
    with recorded(task.request, key) as recording:
        recording.work(0.1)
        while value <= first and not client.exists(f"{settings.TEST_NAMESPACE}:go:{key}"):
            recording.work(0.1)
    return value


def one_by_one(**options: Any) -> dict[str, Any]:
    """Give a policy under which starts wait for each other."""
    return unique("while_executing", on_conflict=MINUTE, **options)


@shared_task(bind=True, unique=one_by_one())
def early(self: Task, key: str, value: int) -> int:
    """Run one by one."""
    return run(self, key, value)


@shared_task(bind=True, acks_late=True, unique=one_by_one())
def late(self: Task, key: str, value: int) -> int:
    """Run one by one, acked after the run."""
    return run(self, key, value)


@shared_task(bind=True, unique=one_by_one(limit=2))
def in_pairs(self: Task, key: str, value: int) -> int:
    """Run two at a time."""
    return run(self, key, value, first=2)


@shared_task(bind=True, unique=unique("until_and_while_executing", on_conflict={"execution": MINUTE}))
def one_waits(self: Task, key: str, value: int) -> int:
    """Run one by one; one more waits."""
    return run(self, key, value)


@shared_task(bind=True, unique=unique("while_executing", on_conflict=Reschedule(after=60, times=1)))
def put_off_once(self: Task, key: str, value: int) -> int:
    """Be dead when put off twice."""
    return run(self, key, value)


@shared_task(bind=True, unique=one_by_one())
def heavy(self: Task, key: str, load: str = "") -> None:
    """Carry a load."""
    run(self, key, 2)


@shared_task(bind=True, unique=one_by_one(), max_retries=1)
def retried(self: Task, key: str, value: int) -> int:
    """Fail at first."""
    run(self, key, value)
    if not self.request.retries:
        raise self.retry(countdown=0.2)
    return value


@shared_task(bind=True, unique=one_by_one())
def killed(self: Task, key: str, value: int) -> int:
    """Die with the process, if it is the second."""
    if value == 2:
        with recorded(self.request, key):
            os.kill(os.getpid(), signal.SIGKILL)
    return run(self, key, value)


@shared_task(bind=True, acks_late=True, reject_on_worker_lost=True, unique=one_by_one())
def killed_late(self: Task, key: str, value: int) -> int:
    """Die with the process at the first start of the second."""
    if value != 2:
        return run(self, key, value)
    with recorded(self.request, key) as recording:
        if recording.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return value


@shared_task(bind=True, unique=one_by_one())
def telling(self: Task, key: str) -> dict[str, Any]:
    """Tell what the message says of itself."""
    return {"parent": self.request.parent_id, "shown": [self.request.argsrepr, self.request.kwargsrepr]}


@shared_task(bind=True)
def linked(self: Task, value: int, key: str) -> None:
    """Be a callback."""
    with recorded(self.request, key):
        pass
