"""The tasks of the crash matrix: one body under each lock, acked early and late."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from tests.crash import strikes
from tests.crash.cells import LEASE
from tests.rig.journal import recorded

TTL = 3600

ACKS: dict[str, dict[str, Any]] = {
    "early": {},
    "late": {"acks_late": True},
    "late, rejected": {"acks_late": True, "reject_on_worker_lost": True},
}
LOCKS = ("until_executed", "until_and_while_executing", "while_executing")


def job(lock: str, ack: str) -> Any:
    """Make the task of one lock and one way to ack."""
    policy = {"lock": lock, "key": "key", "lease": LEASE, "ttl": TTL}

    @shared_task(bind=True, name=f"crash {lock} {ack}", unique=policy, **ACKS[ack])
    def body(self: Task, key: str, seconds: float = 1.0, retry_to: str = "") -> str:
        with recorded(self.request, key) as recording:
            strikes.pass_by("body start", self.request.id)
            recording.work(seconds / 2)
            strikes.pass_by("body middle", self.request.id)
            recording.work(seconds / 2)
            if retry_to and not self.request.retries:
                raise self.retry(countdown=0, queue=retry_to)
        strikes.pass_by("body end", self.request.id)
        return key

    return body


TASKS = {(lock, ack): job(lock, ack) for lock in LOCKS for ack in ACKS}
