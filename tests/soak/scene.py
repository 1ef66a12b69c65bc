"""The world of a soak: its settings, what is left in the store and the broker, and how it is drained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis

from django_jobdedup.recovery.duty import Tally, never
from django_jobdedup.recovery.freeing import free
from django_jobdedup.recovery.lost_runs import readers
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record
from django_jobdedup.stores.results import Doubt, Event
from testproject.celery import app
from tests.executing.remains import LockKeys, Remains
from tests.rig.environment import Environment, new_namespace
from tests.rig.redelivery import FAST_REDELIVERY, restore_lapsed
from tests.rig.waiting import wait_for

from . import tasks

QUEUE: Final = "celery"
PATIENCE: Final = 0.5
"""Seconds between two looks for a message that seems to be gone, where all is quiet."""


def world(url: str, folder: Path) -> Environment:
    """Give a world with short leases, a visibility timeout of three seconds, and time for a busy machine."""
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": url,
        "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": 10, "SOCKET_TIMEOUT": 10},
    }
    celery = {
        "imports": [tasks.MODULE],
        "broker_url": url,
        "result_backend": url,
        # A worker that is killed during its sweep keeps kombu's mutex of sweeps that long.
        "broker_transport_options": {**FAST_REDELIVERY, "unacked_mutex_expire": 2},
        "worker_lost_wait": 1.0,
        "result_backend_thread_safe": True,
    }
    settings = {
        "CACHES": {"jobdedup": cache},
        "SOAK_JOURNAL": str(folder / "journal"),
        "SOAK_READY": str(folder),
    }
    return Environment(new_namespace(), url, celery=celery, settings=settings)


@dataclass(slots=True)
class Scene:
    """Looks at a world in which this process is; the environment is that of the others."""

    environment: Environment
    client: redis.Redis
    lock_keys: LockKeys

    def messages(self) -> int:
        """Count what is in the queue and in the workers' hands."""
        name = self.environment.namespace
        unacked = int(self.client.hlen(f"{name}:unacked")) + int(self.client.zcard(f"{name}:unacked_index"))  # type: ignore[arg-type]
        return unacked + int(self.client.llen(f"{name}:{QUEUE}"))  # type: ignore[arg-type]

    def drain(self, timeout: float) -> Tally:
        """Wait until no message and no lock is left; the reaper is not asked to be as patient as it is."""
        tally = Tally()

        def drained() -> bool:
            restore_lapsed(app)
            tally.update(reap(never))
            if self.messages():
                return False
            tally.update(free([*doubts(self.locks())], PATIENCE))
            return not self.messages() and not self.locks()

        wait_for(
            drained, timeout, every=0.5, what=lambda: f"no {self.messages()} messages, no {self.locks()}"
        )
        return tally

    def locks(self) -> list[Record]:
        """Give what is held."""
        store = stores["default"]
        found: list[Record] = []
        for shard in range(store.shards):
            records = store.list_locks(shard, limit=10_000)
            assert isinstance(records, list), records
            found += records
        return found

    def remains(self) -> Remains:
        """Give what is left in the store."""
        return self.lock_keys.remains()

    def events(self) -> list[Event]:
        """Give what the store has noted."""
        found: list[Event] = []
        for shard in range(stores["default"].shards):
            events = stores["default"].events(shard, limit=20_000)
            assert isinstance(events, list), events
            found += events
        return found

    def state_of(self, task_id: str) -> str:
        """Give the state of a result."""
        return str(app.AsyncResult(task_id).state)


def doubts(locks: Iterable[Record]) -> Iterator[tuple[Any, Doubt]]:
    """Doubt every seat that only its message keeps, however young."""
    for record in locks:
        for holder in record.holders:
            if holder.state == "W" or (holder.state == "R" and holder.lease < record.now):
                yield stores["default"], Doubt(record.ref, record.name, holder)


def scene(here: Environment, environment: Environment) -> Iterator[Scene]:
    """Enter a world; ``environment`` is the same as other processes see it."""
    readers.reset()  # their places are those of another store
    with (
        here.entered(app),
        closing(LockKeys(environment)) as lock_keys,
        redis.Redis.from_url(environment.redis_url, decode_responses=True) as client,
    ):
        yield Scene(environment, client, lock_keys)
