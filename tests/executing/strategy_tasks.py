"""The tasks of the strategies: each keeps the values with which its bodies ran."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import redis
from celery import Task, shared_task
from django.conf import settings

from django_jobdedup import Reschedule, Wait
from django_jobdedup.lock_types.base import LockType
from django_jobdedup.outcomes import Block, Dead, Decision, PutOff, Refuse, Suppress
from django_jobdedup.strategies.base import Conflict, Strategy
from tests.jobs.tasks import JobError, unique
from tests.rig.journal import TICK, recorded, writer

MODULE = "tests.executing.strategy_tasks"
QUICKLY = Reschedule(after=0.3, up_to=0.6)


class Soon(Strategy):
    """A strategy of a project's own: puts a start off for a moment."""

    def decide(self, conflict: Conflict) -> Decision:
        """Put off."""
        return PutOff(0.3)


class UntilCollected(LockType):
    """A lock type of a project's own: it outlives a good end, and a start may be refused as well."""

    counts = "PWRK"
    gated = True
    keeps = True
    conflicts = ("dispatch", "execution")


@dataclass(frozen=True)
class ByWord(Strategy):
    """A strategy of a project's own that does what it is told."""

    word: str = "skip"

    def decide(self, conflict: Conflict) -> Decision:
        """Decide."""
        return {
            "skip": Suppress(),
            "raise": Refuse(),
            "reject": Dead("by word"),
            "wait": Block(2, Suppress()),
        }[self.word]


def values(client: redis.Redis, namespace: str, key: str) -> list[int]:
    """Give the values with which the bodies of a key ran, in order of their starts."""
    return [int(value) for value in client.lrange(f"{namespace}:values:{key}", 0, -1)]


def run(task: Task, key: str, value: int, seconds: float) -> int:
    """Note the value, take the time or less (``let_end``), give the value."""
    client = writer(settings.JOURNAL_URL, os.getpid())
    with recorded(task.request, key) as recording:
        client.rpush(f"{settings.TEST_NAMESPACE}:values:{key}", value)
        until = time.monotonic() + seconds
        while time.monotonic() < until and not client.exists(f"{settings.TEST_NAMESPACE}:end:{key}"):
            recording.work(min(TICK, seconds))
    return value


def let_end(client: redis.Redis, namespace: str, key: str) -> None:
    """Let the runs of a key end before their time."""
    client.set(f"{namespace}:end:{key}", 1)


def quick(dispatch: Any) -> dict[str, Any]:
    """Give a policy whose waiting job looks at the gate every half second."""
    sides = {"dispatch": dispatch, "execution": QUICKLY}
    return unique("until_and_while_executing", on_conflict=sides)


@shared_task(bind=True, unique=unique(on_conflict="rerun"))
def rerunning(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run again for what changed meanwhile."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=quick("rerun"))
def rerunning_soon(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run again for what changed meanwhile, soon."""
    return run(self, key, value, seconds)


@shared_task(bind=True, acks_late=True, unique=quick("rerun"))
def rerunning_late(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run again for what changed meanwhile, acked after the run."""
    return run(self, key, value, seconds)


@shared_task(bind=True, max_retries=3, unique=quick("rerun"))
def rerunning_retried(self: Task, key: str, value: int = 0, other: int | None = None) -> int:
    """Fail at first; then run with what it had, or with another value."""
    run(self, key, value, 0.0)
    if self.request.retries < 1:
        changed = {} if other is None else {"args": (key, other), "kwargs": {}}
        raise self.retry(countdown=1.0, **changed)
    return value


@shared_task(bind=True, unique=quick("replace"))
def replacing(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run with the last call's value."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=quick("keep_soonest"))
def soonest(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run at the soonest time asked for."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=unique("while_executing", on_conflict=Wait(1)))
def waiting(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Wait for the other run, in its worker slot: for a third of the visibility timeout."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=unique("while_executing", on_conflict=Wait(0.5, then="skip")))
def waiting_in_vain(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Wait for the other run for a moment, then end."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=unique("while_executing", on_conflict=Soon()))
def own_way(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run under a strategy of the project's own."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=unique("while_executing", on_conflict=ByWord()))
def by_word(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run under a strategy of the project's own that does what it is told."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=unique(UntilCollected))
def collecting(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Run under a lock type of the project's own."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=unique("while_executing", on_conflict="reject"))
def rejecting(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Be dead when another runs."""
    return run(self, key, value, seconds)


@shared_task(
    bind=True,
    unique=unique("until_and_while_executing", on_conflict={"dispatch": "rerun", "execution": "reject"}),
)
def rejecting_reruns(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Be dead when another runs, with all that joined."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=unique("while_executing", on_conflict=Reschedule(0.2, up_to=0.2, times=2)))
def patient_twice(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Be put off twice, then be dead."""
    return run(self, key, value, seconds)


@shared_task(
    bind=True, acks_late=True, reject_on_worker_lost=True, unique={**unique(max_starts=3), "lease": 1}
)
def poisonous(self: Task, key: str, value: int = 0, healthy: bool = False, seconds: float = 0.0) -> int:
    """Kill its own process."""
    run(self, key, value, seconds)
    if not healthy:
        os.kill(os.getpid(), 9)
    return value


@shared_task(bind=True, max_retries=1, unique={**unique(), "lease": 1})
def slow_to_hand_over(self: Task, key: str, value: int = 1) -> int:
    """Publish a retry, and end a second later."""
    run(self, key, value, 0.5)
    if value == 1:
        try:
            self.retry(countdown=0.0)
        finally:
            time.sleep(1.0)
    return value


@shared_task(bind=True, unique={**unique(), "lease": 1})
def fatal_once(self: Task, key: str) -> int:
    """Kill its own process, the first time."""
    with recorded(self.request, key) as recording:
        client = writer(settings.JOURNAL_URL, os.getpid())
        client.rpush(f"{settings.TEST_NAMESPACE}:values:{key}", recording.attempt)
        if recording.attempt == 1:
            os.kill(os.getpid(), 9)
    return recording.attempt


@shared_task(bind=True, unique=unique(max_starts=2), max_retries=5)
def retried_too_often(self: Task, key: str, value: int = 0) -> int:
    """Retry without an end."""
    run(self, key, value, 0.0)
    raise self.retry(countdown=0.0, exc=JobError("again"))


@shared_task(bind=True, time_limit=1, unique=unique("until_expired", ttl=60, keep_on_failure=True))
def kept_over_its_limit(self: Task, key: str, value: int = 0, seconds: float = 5.0) -> int:
    """Run into the hard time limit."""
    return run(self, key, value, seconds)


@shared_task(bind=True, acks_late=True, unique={**quick("rerun"), "lease": 1, "ttl": 4})
def catching_up(self: Task, key: str, value: int = 0) -> None:
    """Read the state of that moment, take a while, and note the state that was processed."""
    client, name = writer(settings.JOURNAL_URL, os.getpid()), f"{settings.TEST_NAMESPACE}:state:{key}"
    with recorded(self.request, key) as recording:
        seen = int(client.get(name) or 0)
        assert value <= seen, "a caller writes before it calls"
        recording.work(0.3)
        client.set(f"{name}:processed", seen)


#: Seconds between reading a document and having it processed.
PROCESSING = 0.03


def process(task: Task, key: str) -> None:
    """Read a document at once, work for a moment, and note the version that was processed, if it is newer."""
    client, name = writer(settings.JOURNAL_URL, os.getpid()), f"{settings.TEST_NAMESPACE}:state:{key}"
    with recorded(task.request, key) as recording:
        seen = int(client.get(name) or 0)
        client.rpush(f"{settings.TEST_NAMESPACE}:read:{key}", seen)
        recording.work(PROCESSING)
        client.zadd(f"{settings.TEST_NAMESPACE}:processed", {key: seen}, gt=True)


@shared_task(bind=True, unique=unique(on_conflict="rerun"))
def rebuilt_again(self: Task, key: str) -> None:
    """Be asked again while it runs: then it runs once more."""
    process(self, key)


@shared_task(bind=True, unique=unique("until_executing"))
def rebuilt_from_start(self: Task, key: str) -> None:
    """Be free for the next call as soon as the body starts."""
    process(self, key)


@shared_task(bind=True, unique=quick("skip"))
def rebuilt_in_turn(self: Task, key: str) -> None:
    """Let one wait while one runs."""
    process(self, key)


def speed() -> float:
    """Give how long a look into a slow mailbox takes at the moment, seconds."""
    return float(writer(settings.JOURNAL_URL, os.getpid()).get(f"{settings.TEST_NAMESPACE}:speed") or 0)


@shared_task(bind=True, unique=unique())
def polling(self: Task, key: str, seconds: float | None = None) -> None:
    """Look into a mailbox, one job at a time."""
    run(self, key, 0, speed() if seconds is None else seconds)


@shared_task(bind=True, unique=quick("skip"))
def polling_and_again(self: Task, key: str) -> None:
    """Look into a mailbox; one more may wait."""
    run(self, key, 0, speed())


@shared_task(bind=True, unique=unique("until_expired", ttl=1.6))
def once_a_slot(self: Task, key: str) -> None:
    """Run once in the time of a slot, whoever sends it."""
    run(self, key, 0, 0.05)


@shared_task(bind=True)
def summed(self: Task, values: list[int], key: str) -> int:
    """Be the body of a chord."""
    return run(self, f"{key}-summed", sum(values), 0.0)


@shared_task(bind=True)
def told(self: Task, uuid: str, key: str) -> None:
    """Be an error callback."""
    run(self, f"{key}-told", 1, 0.0)


@shared_task(bind=True, unique=unique("while_executing", on_conflict=Reschedule(after=5, up_to=5, times=1)))
def sleeping_long(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Sleep once for the other run, for longer than a message may; then give up."""
    return run(self, key, value, seconds)


@shared_task(bind=True, unique=unique("until_executed", on_conflict=Reschedule(after=5, up_to=5, times=1)))
def sent_much_later(self: Task, key: str, value: int = 0, seconds: float = 0.0) -> int:
    """Be sent later for the other run, by longer than a message may sleep; then give up."""
    return run(self, key, value, seconds)
