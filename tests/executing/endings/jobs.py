"""The jobs of the table: each kind once acked early and once acked late.

Workers import this module. Bodies do one of the ``WAYS`` of ``..tasks`` and of those below.
"""

from __future__ import annotations

from typing import Any, Final

from celery import Task, shared_task

from tests.jobs.tasks import JobError
from tests.rig.journal import Recording

from .. import strategy_tasks, tasks
from ..tasks import WAYS, act, declared

MODULE: Final = __name__
LEASE: Final = 5
"""Longer than Celery takes to report a lost process, shorter than the visibility timeout."""
VISIBILITY: Final = 9
"""Seconds; longer than every body that is not cut short."""
LOST_WAIT: Final = 1.0
"""Seconds after which Celery reports a lost pool process; ten by default."""
RETRY_AFTER: Final = 0.5
"""Seconds; without a delay a retry may end before Celery writes RETRY over its result."""
ACKS: Final = {"early": False, "late": True}


def retry_otherwise(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Ask for a retry with other arguments."""
    raise task.retry(args=(key, "succeed"), countdown=RETRY_AFTER)


def run_out_of_memory(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Raise MemoryError."""
    recording.work(seconds)
    raise MemoryError(key)


def clean_up(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Work, and when told to go, clean up first."""
    try:
        recording.work(seconds)
    except BaseException:
        recording.work(1.0)
        raise


def give_way(task: Task, key: str, seconds: float, recording: Recording) -> None:
    """Have another task take over under the own id, on the own queue."""
    other = task.app.signature(f"{tasks.MODULE}.other", args=(key,), kwargs={"seconds": seconds})
    raise task.replace(other.set(queue=task.request.delivery_info["routing_key"]))


WAYS.update({each.__name__: each for each in (retry_otherwise, run_out_of_memory, clean_up, give_way)})


def _kind(name: str, **options: Any) -> dict[str, Task]:
    """Make one kind of job, in both acks."""

    def body(self: Task, key: str, how: str = "succeed", seconds: float = 0.0) -> Any:
        return act(self, key, how, seconds)

    return {
        ack: shared_task(
            body,
            name=f"{MODULE}.{name}_{ack}",
            bind=True,
            **{"acks_late": late, "unique": declared(lease=LEASE), "max_retries": 1, **options},
        )
        for ack, late in ACKS.items()
    }


plain = _kind("plain")
autoretried = _kind(
    "autoretried", autoretry_for=(JobError,), default_retry_delay=RETRY_AFTER, retry_backoff=False
)
by_how = _kind("by_how", unique=declared(lease=LEASE, key=["key", "how"]))
rejected_when_lost = _kind("rejected_when_lost", reject_on_worker_lost=True)
outliving = _kind("outliving", unique=declared("until_expired", lease=LEASE))
outliving_failures = _kind(
    "outliving_failures", unique=declared("until_expired", lease=LEASE, keep_on_failure=True)
)
starting = _kind("starting", unique=declared("until_executing", lease=LEASE))
one_at_a_time = _kind("one_at_a_time", unique=declared("while_executing", lease=LEASE))
one_and_one = _kind("one_and_one", unique=declared("until_and_while_executing", lease=LEASE))
retried_when_lost = _kind("retried_when_lost", retry_on_worker_lost=True, default_retry_delay=0)
back_at_timeout = _kind("back_at_timeout", acks_on_failure_or_timeout=False)


@shared_task(bind=True, unique=declared("while_executing", lease=LEASE))
def meeting(self: Task, key: str, seconds: float = 0.0) -> str:
    """Meet equal ones, until the time is over or ``strategy_tasks.let_end`` is called."""
    strategy_tasks.run(self, key, 0, seconds)
    return str(self.request.id)


@shared_task
def sending(key: str, queue: str) -> str:
    """Dispatch a job to a queue; give the fingerprint of its lock."""
    return str(plain["early"].apply_async((key,), queue=queue).fingerprint)


NOWHERE: Final = f"{MODULE}.nowhere"
"""The name of a task that no worker knows."""
OPTIONS: Final = {"imports": [tasks.MODULE, MODULE], "worker_lost_wait": LOST_WAIT}
"""Celery options of a worker that knows these jobs."""
SETTINGS: Final = {"JOBDEDUP_TASKS": {NOWHERE: {"unique": declared(lease=LEASE)}}}
