"""Tasks whose bodies do what the call says, so that one worker meets every ending.

Workers import this module through Celery's ``imports`` (see ``conftest.py``). All take ``key`` first, are
unique by it, live on a lease of ``LEASE`` and, but for the named exceptions, on a TTL of an hour.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Task, current_app, shared_task
from celery.exceptions import Ignore, Reject
from django.db import connections

from django_jobdedup import Reschedule, current_lock
from django_jobdedup.exceptions import LockLost
from django_jobdedup.stores.durable import DurableStore
from django_jobdedup.stores.handler import stores
from tests.jobs.tasks import JobError, unique
from tests.rig.journal import Recording, recorded

LEASE = 2
MODULE = __name__


def declared(lock: str = "until_executed", **options: Any) -> dict[str, Any]:
    """Give the options of a policy on ``key``."""
    return unique(lock, **{"lease": LEASE, **options})


def act(task: Task, key: str, how: str, seconds: float) -> Any:
    """Do one of the ``WAYS``; those that end with ``_once`` do it at the first start of an id only."""
    with recorded(task.request, key) as recording:
        if how.endswith("_once"):
            first = recording.attempt == 1
            how, seconds = (how.removesuffix("_once"), seconds) if first else ("succeed", 0.0)
        return WAYS[how](task, key, seconds, recording)


def succeed(task: Task, key: str, seconds: float, recording: Recording) -> str:
    """Work and return."""
    recording.work(seconds)
    return key


def fail(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Work and raise."""
    recording.work(seconds)
    raise JobError(key)


def retry(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Ask for a retry, until they are used up."""
    raise task.retry(countdown=seconds, exc=JobError(key))


def ignore(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Raise Ignore."""
    raise Ignore


def reject(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Raise Reject, for good."""
    raise Reject("not wanted", requeue=False)


def requeue(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Raise Reject, to be delivered again."""
    raise Reject("once more", requeue=True)


def leave(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Raise SystemExit."""
    raise SystemExit(1)


def vanish(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Have this process killed, as the kernel does when memory runs out."""
    recording.work(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def stay(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Work, and when told to go, clean up for another second first."""
    try:
        recording.work(seconds)
    except SystemExit:
        recording.work(1.0)
        raise


def deaf(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Work, without an ear for SIGTERM until a second after it came."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    while signal.SIGTERM not in signal.sigpending():
        recording.work(0.1)
    recording.work(1.0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    recording.work(seconds)


def ignore_sigterm(task: Task, key: str, seconds: float, recording: Recording) -> str:
    """Work on when told to go; the process lives on too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    recording.work(seconds)
    return key


def answer_an_object(task: Task, key: str, seconds: float, recording: Recording) -> object:
    """Return what no serializer takes."""
    return object()


def leave_open(task: Task, key: str, seconds: float, recording: Recording) -> str:
    """Return with a transaction open on the database of the store."""
    store = stores["default"]
    assert isinstance(store, DurableStore)
    connections[store.using].set_autocommit(False)
    return key


def replace(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Have another task take over under the own id."""
    signature = current_app.signature(f"{MODULE}.other", args=(key,), kwargs={"seconds": seconds})
    raise task.replace(signature)


WAYS = {
    each.__name__: each
    for each in (
        succeed, fail, retry, ignore, reject, requeue, leave, vanish, stay, deaf,
        ignore_sigterm, answer_an_object, leave_open, replace,
    )
}  # fmt: skip


@shared_task(bind=True)
def other(self: Task, key: str, seconds: float = 0.0) -> str:
    """Run without a policy of its own."""
    return str(act(self, key, "succeed", seconds))


@shared_task(bind=True, max_retries=1, unique=declared())
def early(self: Task, key: str, how: str = "succeed", seconds: float = 0.0) -> Any:
    """Acked before the run."""
    return act(self, key, how, seconds)


@shared_task(bind=True, max_retries=1, acks_late=True, unique=declared())
def late(self: Task, key: str, how: str = "succeed", seconds: float = 0.0) -> Any:
    """Acked after the run."""
    return act(self, key, how, seconds)


@shared_task(bind=True, acks_late=True, reject_on_worker_lost=True, unique=declared())
def late_back_when_lost(self: Task, key: str, how: str = "succeed", seconds: float = 0.0) -> Any:
    """Acked after the run; put back when its process was lost."""
    return act(self, key, how, seconds)


@shared_task(bind=True, max_retries=3, default_retry_delay=0.2, retry_on_worker_lost=True, unique=declared())
def retried_when_lost(self: Task, key: str, how: str = "succeed", seconds: float = 0.0) -> Any:
    """Retried by the main process when its own was lost (Celery 5.7)."""
    return act(self, key, how, seconds)


@shared_task(bind=True, acks_late=True, acks_on_failure_or_timeout=False, unique=declared())
def late_back_at_timeout(self: Task, key: str, how: str = "succeed", seconds: float = 0.0) -> Any:
    """Acked after the run; put back at a hard time limit."""
    return act(self, key, how, seconds)


@shared_task(bind=True, max_retries=3, unique=declared())
def chained_attempts(self: Task, key: str, times: int = 2, countdown: float = 1.0) -> int:
    """Retry *times* times after *countdown*, then succeed."""
    with recorded(self.request, key):
        if self.request.retries < times:
            raise self.retry(countdown=countdown)
    return int(self.request.retries)


@shared_task(bind=True, max_retries=3, unique=declared(ttl=1))
def short_lived(self: Task, key: str, times: int = 0, countdown: float = 0.0) -> int:
    """Live on a TTL of a second; retry *times* times after *countdown*."""
    with recorded(self.request, key):
        if self.request.retries < times:
            raise self.retry(countdown=countdown)
    return int(self.request.retries)


@shared_task(
    bind=True, max_retries=3, autoretry_for=(JobError,), retry_backoff=False, default_retry_delay=2,
    unique=declared(),
)  # fmt: skip
def failing_twice(self: Task, key: str) -> int:
    """Fail twice with an exception that Celery retries by itself."""
    with recorded(self.request, key):
        if self.request.retries < 2:
            raise JobError(key)
    return int(self.request.retries)


@shared_task(bind=True, max_retries=3, unique=declared(key=["key", "step"]))
def stepping(self: Task, key: str, step: int = 0) -> int:
    """Retry once with other arguments."""
    with recorded(self.request, key):
        if step == 0:
            raise self.retry(args=(key,), kwargs={"step": 1}, countdown=2.0)
    return step


@shared_task(bind=True, max_retries=3, unique=declared("while_executing"))
def mutex_retrying(self: Task, key: str, times: int = 0, seconds: float = 0.0) -> int:
    """One at a time; retry *times* times after a second and a half."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
        if self.request.retries < times:
            raise self.retry(countdown=1.5)
    return int(self.request.retries)


QUICKLY = Reschedule(after=0.1, up_to=0.3)


@shared_task(bind=True, unique=declared("while_executing", on_conflict=QUICKLY))
def mutex(self: Task, key: str, seconds: float = 0.0) -> str:
    """One at a time, put off for moments."""
    return str(act(self, key, "succeed", seconds))


@shared_task(bind=True, acks_late=True, unique=declared("while_executing", on_conflict=QUICKLY))
def mutex_late(self: Task, key: str, seconds: float = 0.0) -> str:
    """One at a time, acked after the run."""
    return str(act(self, key, "succeed", seconds))


@shared_task(bind=True, unique=declared("until_and_while_executing", on_conflict={"execution": QUICKLY}))
def one_and_one(self: Task, key: str, seconds: float = 0.0) -> str:
    """At most one waits, one runs."""
    return str(act(self, key, "succeed", seconds))


@shared_task(bind=True, unique=declared("until_executing"))
def until_start(self: Task, key: str, seconds: float = 0.0) -> str:
    """At most one waits, any number run."""
    return str(act(self, key, "succeed", seconds))


@shared_task(bind=True, unique=declared("until_expired", ttl=3))
def once_in_three(self: Task, key: str, how: str = "succeed") -> Any:
    """Once in three seconds, unless it fails."""
    return act(self, key, how, 0.0)


@shared_task(bind=True, unique=declared("until_expired", ttl=3, keep_on_failure=True))
def once_in_three_whatever_comes(self: Task, key: str, how: str = "succeed") -> Any:
    """Once in three seconds."""
    return act(self, key, how, 0.0)


@shared_task(bind=True, unique=declared("while_executing", limit=2, on_conflict=QUICKLY))
def two_at_a_time(self: Task, key: str, seconds: float = 0.0) -> str:
    """Two at a time."""
    return str(act(self, key, "succeed", seconds))


@shared_task(bind=True, unique=declared(limit=2))
def two_in_flight(self: Task, key: str, seconds: float = 0.0) -> str:
    """Two waiting or running."""
    return str(act(self, key, "succeed", seconds))


@shared_task(bind=True, unique=declared("while_executing", on_conflict="skip"))
def skipping(self: Task, key: str, seconds: float = 0.0) -> str:
    """Skip a start that meets a running one."""
    return str(act(self, key, "succeed", seconds))


@shared_task(bind=True, unique=declared("while_executing", on_conflict="log"))
def logging(self: Task, key: str, seconds: float = 0.0) -> str:
    """Skip a start that meets a running one, with a warning."""
    return str(act(self, key, "succeed", seconds))


@shared_task(
    bind=True, max_retries=1,
    unique=declared("while_executing", on_conflict=Reschedule(after=0.5, up_to=4)),
)  # fmt: skip
def patient(self: Task, key: str, seconds: float = 0.0) -> int:
    """One at a time, put off with a delay that doubles."""
    act(self, key, "succeed", seconds)
    return int(self.request.retries)


def look(task: Task, key: str, seconds: float) -> dict[str, Any]:
    """Tell what ``current_lock()`` says, before and after *seconds*."""
    with recorded(task.request, key) as recording:
        lock = current_lock()
        assert lock is not None
        told = {"fingerprint": lock.fingerprint, "token": lock.token, "fence": lock.fence, "held": lock.held}
        recording.work(seconds)
        try:
            lock.check()
        except LockLost as error:
            return {**told, "check": type(error).__name__, "held_at_end": lock.held}
        return {**told, "check": None, "held_at_end": lock.held}


@shared_task(bind=True, unique=declared())
def looking(self: Task, key: str, seconds: float = 0.0) -> dict[str, Any]:
    """Tell of its lock."""
    return look(self, key, seconds)


@shared_task(bind=True, unique=declared("while_executing", on_conflict=QUICKLY))
def looking_mutex(self: Task, key: str, seconds: float = 0.0) -> dict[str, Any]:
    """Tell of its lock, one at a time."""
    return look(self, key, seconds)


@shared_task(bind=True, acks_late=True, unique=declared("while_executing", on_conflict=QUICKLY))
def looking_mutex_late(self: Task, key: str, seconds: float = 0.0) -> dict[str, Any]:
    """Tell of its lock, one at a time, acked late."""
    return look(self, key, seconds)


@shared_task
def looking_without_a_policy(key: str) -> bool:
    """Tell whether ``current_lock()`` is None."""
    return current_lock() is None


class SlowToEnd(Task):  # type: ignore[misc]
    """A task whose hooks after the body take longer than its lease."""

    abstract = True

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Take two leases."""
        time.sleep(2 * LEASE)

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Take two leases."""
        time.sleep(2 * LEASE)


@shared_task(bind=True, base=SlowToEnd, max_retries=1, unique=declared())
def slow_to_end(self: Task, key: str, times: int = 0) -> int:
    """Work for a lease; then a retry or the end, with slow hooks."""
    with recorded(self.request, key) as recording:
        recording.work(LEASE)
        if self.request.retries < times:
            raise self.retry(countdown=0.1)
    return int(self.request.retries)


@shared_task(unique=declared())
def quick(key: str) -> None:
    """Do nothing, write nothing."""


@shared_task
def total(values: list[Any]) -> list[Any]:
    """Be the body of a chord."""
    return values


@shared_task
def following(value: Any, key: str) -> Any:
    """Be the next step of a chain: give what the step before it gave."""
    return value


@shared_task(unique=declared(key=None))
def keyed_by_value(value: Any, word: str = "", seconds: float = 0.0) -> str:
    """Be unique by values that went through a serializer."""
    time.sleep(seconds)
    return "done"


@shared_task(bind=True, unique=declared())
def running_itself(self: Task, key: str, seconds: float = 0.0, again: bool = True) -> str:
    """Call the own ``run`` first, as a plain function, then work."""
    if again:
        self.run(key, 0.0, again=False)
    return str(act(self, key, "succeed", seconds))
