"""History: what a store has met that was abnormal becomes rows, before the store forgets it.

Redis keeps the last ten thousand events of a shard, for ``JOBDEDUP_GRACE``. A durable store writes its events
as rows by itself, and the memory store is one process's own.
"""

from __future__ import annotations

import time
from typing import Any, Final

from django.db import connections, router

from django_jobdedup.conf import conf
from django_jobdedup.models import LockEvent
from django_jobdedup.recovery.duty import UNAVAILABLE, Stop, Tally, answering, reachable
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.database.writing import event_row
from django_jobdedup.stores.results import Event, Unavailable

#: Events in one step.
BATCH: Final = 500


def history_alias() -> str | None:
    """Return the database that keeps the history; None where it is switched off, or there is no database."""
    if conf.HISTORY == "off":
        return None
    alias = router.db_for_write(LockEvent)
    return None if connections[alias].vendor == "unknown" else alias


class Drain:
    """Writes events as rows, and remembers how far this process has come.

    Any number of processes may do it at once: each event has one place in its stream, and one row.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._read: dict[tuple[str, int], str] = {}

    def run(self, stop: Stop) -> Tally:
        """Write what is new in every store that others share. Counts ``events``."""
        tally, alias = Tally(), history_alias()
        if alias is None:
            return tally
        with answering("history", alias, alias, tally):
            for store in reachable("history", tally):
                if store.durable or not store.shared:
                    continue
                for shard in range(store.shards):
                    if stop() or not self._shard(store, shard, alias, stop, tally):
                        break
        return tally

    def _shard(self, store: Store, shard: int, alias: str, stop: Stop, tally: Tally) -> bool:
        """Write the new events of a shard; False when its store does not answer."""
        place = (store.alias, shard)
        while not stop():
            if place not in self._read:
                self._read[place] = _last_key(store.alias, shard, alias)
            events = store.events(shard, self._read[place], BATCH)
            if isinstance(events, Unavailable):
                tally[UNAVAILABLE] += 1
                return False
            if events:
                tally["events"] += _write(store.alias, shard, events, alias)
                self._read[place] = events[-1].key
            if len(events) < BATCH:
                break
        return True


drain: Final = Drain()


def _last_key(store: str, shard: int, alias: str) -> str:
    """Return where others have come, about: what is read twice is written once."""
    rows = LockEvent.objects.using(alias).of_store(store).filter(shard=shard).order_by("-id")
    return str(rows.values_list("key", flat=True).first() or "")


def _write(store: str, shard: int, events: list[Event], alias: str) -> int:
    """Write those that have no row yet; return how many. Retention would delete the old ones at once."""
    oldest = time.time() - conf.RETENTION
    rows = LockEvent.objects.using(alias)
    known = rows.of_store(store).filter(shard=shard, key__in=[event.key for event in events])
    keys: set[Any] = set(known.values_list("key", flat=True))
    new = [event for event in events if event.key not in keys and event.at > oldest]
    rows.bulk_create([event_row(event, store, event.key) for event in new], ignore_conflicts=True)
    return len(new)
