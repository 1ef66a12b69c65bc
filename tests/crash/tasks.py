"""The tasks of the crash matrix: one body under each lock and strategy, acked early and late."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from django_jobdedup.lock_types.registry import LOCK_TYPES
from tests.crash import strikes
from tests.crash.cells import LEASE
from tests.rig.journal import recorded

TTL = 3600
LONGEST = 600
"""Tenths of a second for which a body waits for what it is to meet."""

ACKS: dict[str, dict[str, Any]] = {
    "early": {},
    "late": {"acks_late": True},
    "late, rejected": {"acks_late": True, "reject_on_worker_lost": True},
}


def job(lock: str, ack: str) -> Any:
    """Make the task of one lock and one way to ack; strategy and store come with each call."""
    policy = {"lock": lock, "key": "key", "lease": LEASE, "ttl": TTL}

    @shared_task(bind=True, name=f"crash {lock} {ack}", unique=policy, **ACKS[ack])
    def body(
        self: Task, key: str, seconds: float = 1.0, retry_to: str = "", call: int = 0, meets: bool = False
    ) -> str:
        with recorded(self.request, key, call) as recording:
            for _ in range(LONGEST if meets else 0):
                if strikes.may_go_on(key):
                    break
                recording.work(0.1)
            strikes.pass_by("body start", self.request.id)
            recording.work(seconds / 2)
            strikes.pass_by("body middle", self.request.id)
            recording.work(seconds / 2)
            if retry_to and not self.request.retries:
                raise self.retry(countdown=0, queue=retry_to)
        strikes.pass_by("body end", self.request.id)
        return key

    return body


TASKS = {(lock, ack): job(lock, ack) for lock in LOCK_TYPES for ack in ACKS}
