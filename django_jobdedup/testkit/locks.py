"""Who holds what: the locks of a test as small frozen values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from django_jobdedup.header import task_id_of
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.record import Holder, Record
from django_jobdedup.stores.results import Unavailable

STATES: Final = {"P": "pending", "W": "waiting", "R": "running", "K": "kept"}
#: Records of a shard that are shown: more than a test makes.
_MOST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class HeldLock:
    """One live holder of a lock.

    ``name`` is the lock name, the task's unless the policy has another; ``state`` is pending, waiting,
    running or kept; ``since`` and ``until`` are epoch seconds of the test's clock; ``refused`` counts the
    calls that were refused in favour of this holder.
    """

    name: str
    state: str
    task_id: str
    fingerprint: str
    since: float
    until: float
    refused: int = 0
    store: str = "default"


def held_in(store: Store) -> Iterator[HeldLock]:
    """Go over the live holders of a store. Raises RuntimeError where it serves another process."""
    for shard in range(store.shards):
        records = store.list_locks(shard, limit=_MOST)
        if isinstance(records, Unavailable):
            raise RuntimeError(records.error)
        for record in records:
            for holder in record.holders:
                if _until(holder) > record.now:
                    yield _held(store.alias, record, holder)


def _until(holder: Holder) -> float:
    return max(holder.lease, holder.until) if holder.state == "R" else holder.until


def _held(alias: str, record: Record, holder: Holder) -> HeldLock:
    return HeldLock(
        name=record.name,
        state=STATES[holder.state],
        task_id=task_id_of(holder.id),
        fingerprint=record.ref.fingerprint,
        since=holder.since,
        until=_until(holder),
        refused=holder.refused,
        store=alias,
    )
