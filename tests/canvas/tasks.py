"""Tasks whose results tell which body made them: a run answers with its key and its own task id."""

from __future__ import annotations

import os
import secrets
from typing import Any

import redis
from celery import Task, chain, group, shared_task
from django.conf import settings

from django_jobdedup import Reschedule
from tests.jobs.tasks import JobError, unique
from tests.rig.journal import Recording, recorded, writer

MODULE = "tests.canvas.tasks"
#: A job that may not start beside an equal run looks at the gate often.
QUICK = {"dispatch": "skip", "execution": Reschedule(after=0.2, up_to=0.4)}


def run(task: Task, key: str, seconds: float = 0.0) -> str:
    """Note the run, take the time, say who it was."""
    with recorded(task.request, key) as recording:
        assert isinstance(recording, Recording)
        recording.work(seconds)
    return f"{key} by {task.request.id}"


@shared_task(bind=True)
def plain(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run without a policy."""
    return run(self, key, seconds)


@shared_task(bind=True)
def tail(self: Task, value: Any, key: str) -> Any:
    """Go on with what came before."""
    run(self, key)
    return value


@shared_task(bind=True)
def told(self: Task, *args: Any) -> None:
    """Be an error callback: of the old form with one argument besides the key."""
    run(self, str(args[-1]))


@shared_task(bind=True)
def quiet(self: Task, key: str) -> None:
    """Be a callback that takes no value."""
    run(self, key)


@shared_task(bind=True, unique={**unique(), "canvas": "follow"})
def follow(self: Task, key: str, seconds: float = 0.6) -> str:
    """Run once; equal ones take its outcome."""
    return run(self, key, seconds)


@shared_task(bind=True, unique=unique())
def gated(self: Task, key: str) -> str:
    """Run until somebody lets it end (``let_end``)."""
    client = writer(settings.JOURNAL_URL, os.getpid())
    with recorded(self.request, key) as recording:
        while not client.exists(f"{settings.TEST_NAMESPACE}:end:{key}"):
            recording.work(0.2)
    return f"{key} by {self.request.id}"


def let_end(client: redis.Redis, key: str) -> None:
    """Let the gated job of a key end."""
    client.set(f"{settings.TEST_NAMESPACE}:end:{key}", 1)


@shared_task(bind=True, unique={**unique("until_and_while_executing", on_conflict=QUICK), "canvas": "run"})
def again(self: Task, key: str, seconds: float = 0.6) -> str:
    """Run as often as somebody waits for it."""
    return run(self, key, seconds)


@shared_task(bind=True, unique={**unique(), "canvas": "mark"})
def mark(self: Task, key: str, seconds: float = 0.6) -> str:
    """Run once; equal ones end with nothing."""
    return run(self, key, seconds)


@shared_task(bind=True, unique=unique())
def body(self: Task, values: list[Any], key: str, seconds: float = 0.3) -> list[Any]:
    """Be the body of a chord that gives what its header gave."""
    run(self, key, seconds)
    return values


@shared_task(bind=True)
def total(self: Task, values: list[Any], key: str) -> list[Any]:
    """Be the body of a chord, without a policy."""
    run(self, key)
    return values


@shared_task(bind=True, unique=unique())
def failing(self: Task, key: str, seconds: float = 0.6) -> None:
    """Fail after a while."""
    run(self, key, seconds)
    raise JobError(key)


@shared_task(bind=True, unique=unique())
def out_of_memory(self: Task, key: str, seconds: float = 0.6) -> None:
    """Fail in the way that stops a whole worker."""
    run(self, key, seconds)
    raise MemoryError(key)


@shared_task(bind=True, max_retries=3, unique=unique())
def retried(self: Task, key: str, times: int = 2) -> str:
    """Succeed at the third attempt."""
    done = run(self, key, 0.1)
    if self.request.retries < times:
        raise self.retry(countdown=0.5)
    return done


@shared_task(bind=True, unique=unique())
def replaced(self: Task, key: str) -> None:
    """Replace itself by a chain of two."""
    run(self, key, 0.2)
    raise self.replace(chain(plain.si(f"{key}-one", 0.3), tail.s(f"{key}-two")))


@shared_task(unique=unique())
def drawing(key: str) -> str:
    """Give what no other run gives."""
    return secrets.token_hex(8)


@shared_task(bind=True)
def replacing(self: Task, key: str, task: str) -> None:
    """Replace itself by a group of two equal members."""
    member = self.app.tasks[task].si(key)
    raise self.replace(group(member, member.clone()))


@shared_task(bind=True, unique=unique(), ignore_result=True)
def forgetful(self: Task, key: str, seconds: float = 0.3) -> str:
    """Run without a result."""
    return run(self, key, seconds)


@shared_task(bind=True, unique=unique("until_expired", ttl=60))
def nightly(self: Task, key: str) -> str:
    """Run once a minute."""
    return run(self, key)


@shared_task(bind=True, unique={**unique(on_conflict="replace")})
def replaceable(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> str:
    """Give way to a newer call that comes while it waits."""
    return run(self, key, seconds)


@shared_task(bind=True, unique={**unique(on_conflict="rerun")})
def rerunning(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run with the newest value."""
    run(self, key, seconds)
    return value
