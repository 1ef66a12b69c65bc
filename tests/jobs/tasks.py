"""The tasks that the worker tests run: every lock type, every way to end, and what publishes what.

All take ``key`` first, and the journal is kept by it. ``lease`` is short, so that tests of crashes are. The
``ttl`` is an hour: what becomes free in a test became so by the protocol, not by the TTL. A test that needs
other options sends them in ``JOBDEDUP_TASKS`` (see ``Environment.settings``) or with the call.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from celery import Task, current_app, shared_task
from celery.exceptions import Ignore, Reject

from tests.rig.journal import recorded

LEASE = 3
TTL = 3600


def unique(lock: str = "until_executed", **options: Any) -> dict[str, Any]:
    """Give the options of a policy on ``key``, in the dict form of ``unique=``."""
    return {"lock": lock, "key": "key", "lease": LEASE, "ttl": TTL, **options}


class JobError(Exception):
    """What the failing tasks of the rig raise."""


# Plain bodies, one for each lock type.


@shared_task(bind=True)
def plain(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run without a policy."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, acks_late=True)
def plain_late(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run without a policy, acked after the run."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, unique=True)
def unique_by_all_arguments(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run under ``unique=True``: all arguments, all defaults."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, unique=unique())
def until_executed(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run under the default lock."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, acks_late=True, unique=unique())
def until_executed_late(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run under the default lock, acked after the run."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, unique=unique("while_executing"))
def while_executing(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run one at a time; all of them run."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, acks_late=True, unique=unique("while_executing"))
def while_executing_late(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run one at a time, acked after the run."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, unique=unique("until_and_while_executing"))
def until_and_while_executing(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run with at most one waiting and one running."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, unique=unique("until_executing"))
def until_executing(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run with at most one waiting."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True, unique=unique("until_expired", ttl=4))
def until_expired(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run once in four seconds."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


# Every way to end.


@shared_task(bind=True, max_retries=5, unique=unique())
def retrying(self: Task, key: str, times: int = 1, countdown: float = 0.0) -> int:
    """Retry *times* times, then succeed; gives the number of retries."""
    with recorded(self.request, key):
        if self.request.retries < times:
            raise self.retry(countdown=countdown)
    return self.request.retries


@shared_task(
    bind=True,
    autoretry_for=(JobError,),
    max_retries=5,
    default_retry_delay=0,
    retry_jitter=False,
    unique=unique(),
)
def autoretrying(self: Task, key: str, times: int = 1) -> int:
    """Fail *times* times with an exception that Celery retries by itself, then succeed."""
    with recorded(self.request, key):
        if self.request.retries < times:
            raise JobError(key)
    return self.request.retries


@shared_task(bind=True, unique=unique())
def raising(self: Task, key: str) -> None:
    """Fail."""
    with recorded(self.request, key):
        raise JobError(key)


@shared_task(bind=True, unique=unique())
def ignoring(self: Task, key: str) -> None:
    """End with ``Ignore``."""
    with recorded(self.request, key):
        raise Ignore


@shared_task(bind=True, unique=unique())
def rejecting(self: Task, key: str) -> None:
    """End with ``Reject``, acked before the run."""
    with recorded(self.request, key):
        raise Reject("not wanted", requeue=False)


@shared_task(bind=True, acks_late=True, unique=unique())
def rejecting_once_late(self: Task, key: str) -> str:
    """End the first delivery with ``Reject(requeue=True)``, acked after the run; the second succeeds."""
    with recorded(self.request, key) as recording:
        if recording.attempt == 1:
            raise Reject("once more", requeue=True)
    return key


@shared_task(bind=True, unique=unique())
def exiting(self: Task, key: str) -> None:
    """End with ``SystemExit``."""
    with recorded(self.request, key):
        raise SystemExit(1)


@shared_task(bind=True, unique=unique())
def vanishing(self: Task, key: str) -> None:
    """Have the pool child killed, as the kernel does when memory runs out."""
    with recorded(self.request, key):
        os.kill(os.getpid(), signal.SIGKILL)


@shared_task(bind=True, acks_late=True, reject_on_worker_lost=True, unique=unique())
def vanishing_once_late(self: Task, key: str) -> str:
    """Have the pool child killed at the first start; the redelivery succeeds."""
    with recorded(self.request, key) as recording:
        if recording.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return key


@shared_task(bind=True, soft_time_limit=1, unique=unique())
def soft_limited(self: Task, key: str, seconds: float = 30.0) -> None:
    """Run into the soft time limit of a second."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)


@shared_task(bind=True, time_limit=1, unique=unique())
def hard_limited(self: Task, key: str, seconds: float = 30.0) -> None:
    """Run into the hard time limit of a second."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)


@shared_task(bind=True, unique=unique())
def unencodable(self: Task, key: str) -> object:
    """Succeed with a result that no serializer takes."""
    with recorded(self.request, key):
        return object()


@shared_task(bind=True, unique=unique())
def replacing(self: Task, key: str, by: str = "tests.jobs.tasks.plain") -> None:
    """Replace itself by another task under its own id."""
    with recorded(self.request, key):
        replacement = current_app.signature(by, args=(key,))
    raise self.replace(replacement)


# Publishing from a body.


@shared_task(bind=True)
def dispatching(self: Task, key: str, task: str, times: int = 2, inner_key: str | None = None) -> list[str]:
    """Dispatch *task* several times from a body; gives the ids that the calls returned."""
    with recorded(self.request, key):
        called = current_app.tasks[task]
        return [called.delay(inner_key or key).id for _ in range(times)]


@shared_task(bind=True, unique=unique())
def recursive(self: Task, key: str) -> str:
    """Dispatch an equal call from its own body; gives the id that the call returned."""
    with recorded(self.request, key):
        called: str = current_app.tasks[self.name].delay(key).id
        return called
