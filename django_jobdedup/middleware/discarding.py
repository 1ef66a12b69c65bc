"""Discarding: a message that is thrown away before its start: revoked, too old, or one that nobody can read.

With late ack the seat of a run that has vanished waits for the message of that job. Where it is thrown away,
nobody runs the job again: the seat is free as soon as nobody renews the lease of that run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from django_jobdedup import signals
from django_jobdedup.call import Ending
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.later import later
from django_jobdedup.stores.results import Unavailable, Withdrawn

#: Why Celery throws a message away; the next one of the same job meets the same end.
REASONS: Final = frozenset(("revoked", "expired", "terminated", "rejected", "unknown", "undecodable"))


def free_vanished(ending: Ending, again: Callable[[Ending], bool]) -> bool:
    """Free the seat of a run that has vanished; False while the store does not answer.

    While its lease lasts the run may live: then everything is done ``again`` when the lease is over, for it
    may have ended in a retry whose message was this one.
    """
    store, ref = stores[ending.header.knobs.store], ref_of(ending.header)
    record = store.inspect(ref, ending.header.token)
    if isinstance(record, Unavailable):
        return False
    holders = () if record is None else record.holders
    run = next((each for each in holders if each.id == ending.header.token and each.state == "R"), None)
    if record is None or run is None:
        return True
    if run.lease > record.now:
        at, without_nonce = time.monotonic() + run.lease - record.now, replace(ending, nonce="")
        later.add(lambda: time.monotonic() > at and again(without_nonce))
        return True
    answer = store.remove(ref, run)
    if isinstance(answer, Withdrawn):
        signals.send(signals.lock_released, None, ending=ending)
    return not isinstance(answer, Unavailable)
