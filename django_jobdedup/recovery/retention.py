"""Retention: rows that have ended and events leave the database when they are old."""

from __future__ import annotations

from typing import Any, Final, cast

from django.db import DatabaseError, models

from django_jobdedup import signals
from django_jobdedup.conf import conf
from django_jobdedup.models import JobIntent, LockEvent
from django_jobdedup.models.intent import State
from django_jobdedup.recovery.duty import UNAVAILABLE, Stop, Tally, reachable
from django_jobdedup.stores.database.dialect import explained
from django_jobdedup.stores.durable import DurableStore
from django_jobdedup.stores.results import Unavailable

#: Rows in one statement: a long one would hold its locks and fill the log of the server.
BATCH: Final = 500


def prune(stop: Stop) -> Tally:
    """Delete what is older than ``JOBDEDUP_RETENTION`` from every durable store, in batches by primary key.

    Counts ``intents`` and ``events``. A row whose marker still counts stays, or a late copy of its message
    would run again; one that is dead stays until a person has seen it.
    """
    tally = Tally()
    for store in reachable("retention", tally):
        if not store.durable:
            continue
        # By the clock that has written what is compared: the one of this host may be hours ahead.
        clock = cast(DurableStore, store).now()
        if isinstance(clock, Unavailable):
            tally[UNAVAILABLE] += 1
            continue
        now = round(clock * 1000)
        before = now - round(conf.RETENTION * 1000)
        alias = cast(DurableStore, store).using
        ended = JobIntent.objects.using(alias).ended_before(before, now).exclude(state=State.DEAD)
        try:
            tally["intents"] += _delete(ended.order_by("ended_at"), stop)
            tally["events"] += _delete(LockEvent.objects.using(alias).before(before).order_by("at"), stop)
        except DatabaseError as error:
            words = explained(error, alias)
            signals.send(signals.store_unavailable, None, store=store.alias, verb="retention", error=words)
            tally[UNAVAILABLE] += 1
    return tally


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
