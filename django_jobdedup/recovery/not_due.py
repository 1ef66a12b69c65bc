"""What the relay leaves for later: rows whose sender may still publish them, or that wait for a try."""

from __future__ import annotations

import time
from typing import cast

from django.db import DatabaseError

from django_jobdedup import signals
from django_jobdedup.models import JobIntent
from django_jobdedup.models.intent import State
from django_jobdedup.recovery.duty import Tally, reachable
from django_jobdedup.stores.durable import DurableStore


def not_due_yet() -> int:
    """Count the rows that nobody has published and that are not due so far, in every durable store."""
    number, now = 0, round(time.time() * 1000)
    for store in reachable("relay", Tally()):
        if not store.durable:
            continue
        rows = JobIntent.objects.using(cast(DurableStore, store).using)
        try:
            number += rows.filter(state=State.PENDING, publish_at__gt=now).count()
        except DatabaseError as error:
            signals.report("relay.not_due", error)
    return number
