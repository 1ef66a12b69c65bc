"""What the relay leaves for later: rows whose sender may still publish them, or that wait for a try."""

from __future__ import annotations

from typing import cast

from django.db import DatabaseError

from django_jobdedup import signals
from django_jobdedup.models import JobIntent
from django_jobdedup.models.intent import State
from django_jobdedup.recovery.duty import Tally, reachable
from django_jobdedup.stores.durable import DurableStore
from django_jobdedup.stores.results import Unavailable


def not_due_yet() -> int:
    """Count the rows that nobody has published and that are not due so far, in every durable store."""
    number = 0
    for store in reachable("relay", Tally()):
        if not store.durable:
            continue
        # By the clock that has written what is compared: the one of this host may be hours ahead.
        now = cast(DurableStore, store).now()
        if isinstance(now, Unavailable):
            continue
        rows = JobIntent.objects.using(cast(DurableStore, store).using)
        try:
            number += rows.filter(state=State.PENDING, publish_at__gt=round(now * 1000)).count()
        except DatabaseError as error:
            signals.report("relay.not_due", error)
    return number
