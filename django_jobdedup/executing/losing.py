"""A renewal that found nothing held: what it means for the job that runs.

Its body may have ended just now, with the result still on its way to this process. The store may have
forgotten the lock (flush, failover): then it is taken again if it is free. Else the lock is lost.
"""

from __future__ import annotations

import logging
import time

from django_jobdedup import signals
from django_jobdedup.executing.reception import Delivery
from django_jobdedup.middleware.starting import claim_request
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Holder, Record
from django_jobdedup.stores.results import Claimed, Done, Unavailable, Withdrawn

logger = logging.getLogger("django_jobdedup")


def look_into(delivery: Delivery) -> None:
    """Take a forgotten lock again, or send ``lock_lost``, once; say nothing of a job that has ended."""
    header = delivery.header
    store = stores[header.knobs.store]
    record = store.inspect(delivery.token.ref, header.token)
    if isinstance(record, Unavailable):
        return
    if record is not None and _has_ended(record, delivery):
        delivery.renewed_at = 0.0
        return
    forgotten = _is_forgotten(record, delivery) and not _was_removed(store, delivery)
    answer = _claim_again(store, delivery) if forgotten else None
    if isinstance(answer, Claimed):
        delivery.renewed_at, delivery.missed = time.monotonic(), False
        logger.warning(
            "the store had forgotten lock %s of job %s, which runs: taken again",
            header.fingerprint[:12],
            header.id,
            extra={"action": "retaken", "task_id": header.id, "fingerprint": header.fingerprint},
        )
    elif not isinstance(answer, Unavailable | Done):
        delivery.renewed_at = 0.0
        signals.send(signals.lock_lost, None, id=header.id, fingerprint=header.fingerprint)


def _is_forgotten(record: Record | None, delivery: Delivery) -> bool:
    """Whether the seat is gone though its lease cannot have lapsed.

    After a lapse somebody may have run meanwhile, so a lock taken again would tell this job, wrongly,
    that it was alone all the time.
    """
    is_gone = record is None or all(holder.id != delivery.header.token for holder in record.holders)
    return is_gone and time.monotonic() - delivery.renewed_at < delivery.token.lease


def _was_removed(store: Store, delivery: Delivery) -> bool:
    """Whether a person has freed the lock: asked once more, the store says so and changes nothing."""
    nobody = Holder(delivery.header.token, "K")
    return isinstance(store.remove(delivery.token.ref, nobody), Withdrawn)


def _has_ended(record: Record, delivery: Delivery) -> bool:
    """Whether this attempt was finished: its id is marked, or its seat waits or is kept."""
    marker, header = record.marker, delivery.header
    if marker is not None and (marker.final or marker.superseded_by or marker.n >= header.n):
        return True
    return any(holder.id == header.token and holder.state != "R" for holder in record.holders)


def _claim_again(store: Store, delivery: Delivery) -> object:
    """Claim with the nonce of the delivery that runs: refused when anybody else runs by now."""
    return store.claim(claim_request(delivery.header, delivery.nonce, delivery.late_for, counted=False))
