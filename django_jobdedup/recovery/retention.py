"""Retention: rows that have ended and events leave the database when they are old."""

from __future__ import annotations

import time
from typing import Any, Final, cast

from django.db import models

from django_jobdedup.conf import conf
from django_jobdedup.models import JobIntent, LockEvent
from django_jobdedup.models.intent import State
from django_jobdedup.recovery.duty import UNAVAILABLE, Stop, Tally, answering, reachable
from django_jobdedup.recovery.history import history_alias
from django_jobdedup.stores.durable import DurableStore
from django_jobdedup.stores.results import Unavailable

#: Rows in one statement: a long one would hold its locks and fill the log of the server.
BATCH: Final = 500


def prune(stop: Stop) -> Tally:
    """Delete what is older than ``JOBDEDUP_RETENTION`` from every database, in batches by primary key.

    Counts ``intents`` and ``events``. A row whose marker still counts stays, or a late copy of its message
    would run again; one that is dead stays until a person has seen it.
    """
    tally, done, history = Tally(), set(), None
    for store in reachable("retention", tally):
        if not store.durable:
            history = history or (history_alias() if store.shared else None)
            continue
        # By the clock that has written what is compared: the one of this host may be hours ahead.
        clock = cast(DurableStore, store).now()
        if isinstance(clock, Unavailable):
            tally[UNAVAILABLE] += 1
            continue
        now, alias = round(clock * 1000), cast(DurableStore, store).using
        done.add(alias)
        ended = JobIntent.objects.using(alias).ended_before(_oldest(clock), now).exclude(state=State.DEAD)
        with answering("retention", store.alias, alias, tally):
            tally["intents"] += _delete(ended.order_by("ended_at"), stop)
            tally["events"] += _delete(_events(alias, clock), stop)
    if history is not None and history not in done:
        with answering("retention", history, history, tally):
            tally["events"] += _delete(_events(history, time.time()), stop)
    return tally


def _oldest(now: float) -> int:
    return int((now - conf.RETENTION) * 1000)


def _events(alias: str, now: float) -> models.QuerySet[Any]:
    return LockEvent.objects.using(alias).before(_oldest(now)).order_by("at")


def _delete(rows: models.QuerySet[Any], stop: Stop) -> int:
    """Delete batch by batch; return how many."""
    deleted = 0
    while not stop():
        keys = list(rows.values_list("pk", flat=True)[:BATCH])
        if not keys:
            break
        # Asked once more: a late copy of a message may have brought a row back to life meanwhile.
        deleted += rows.order_by().filter(pk__in=keys).delete()[0]
    return deleted
