"""Reception: the worker's main process gets a message, before any pool does.

Each delivery gets its nonce here, in the process that renews leases and sees the endings that no
body sees. A message without our header is adopted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from kombu.serialization import registry  # type: ignore[attr-defined]

from django_jobdedup.executing.adoption import adopted
from django_jobdedup.executing.broker import visibility_timeout
from django_jobdedup.executing.nonce import new_nonce
from django_jobdedup.executing.pool import comes_again
from django_jobdedup.header import HEADER, NONCE, SERIALIZER, Header, is_newer
from django_jobdedup.middleware.addressing import token_of
from django_jobdedup.middleware.releasing import copies_live
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.requests import Token

logger = logging.getLogger("django_jobdedup")


@dataclass(slots=True)
class Delivery:
    """One received message of a job with a lock; hangs on Celery's request object.

    ``late_for`` is the time for which the broker may deliver the message again if this worker dies (0
    with early ack), seconds. ``renewed_at`` is when its lease was renewed last (monotonic, 0 before the
    first time and after it was lost): only then is a lost one news. ``missed``: the last renewal found
    nothing held.
    """

    header: Header
    nonce: str
    task: str
    late_for: float = 0.0
    renewed_at: float = 0.0
    missed: bool = False
    confirmed: bool = False
    #: Its end was seen by the main process, which now waits for the pool's process to be gone.
    ending: bool = False

    def is_over(self, age: float) -> bool:
        """Say whether the body has ended, or has not begun in ``age`` seconds: nothing is held to renew."""
        return self.missed and bool(self.renewed_at or age > 2 * self.token.lease)

    @property
    def token(self) -> Token:
        """Return what renews and finishes this delivery."""
        return token_of(self.header, self.nonce)


def receive(request: Any) -> Delivery | None:
    """Give a delivery its nonce; None for a job without a lock."""
    wire = request.request_dict
    for name in (NONCE, SERIALIZER):  # a message put back at a shutdown carries those of its earlier delivery
        wire.pop(name, None)
    if is_newer(wire.get(HEADER)):
        _warn_of_newer(request.task.name)
        return None
    header = Header.decode(wire.get(HEADER))
    if header is None or header.id != request.id:
        header = adopted(request)
    if header is None or not header.locks:
        return None
    if header.knobs.store not in stores:
        _run_without(request, header)
        return None
    late_for = (
        copies_live(header.knobs, visibility_timeout(request.app)) if comes_again(request.task) else 0.0
    )
    delivery = Delivery(header, new_nonce(), request.task.name, late_for)
    delivery.confirmed = bool(header.follow or header.mark)  # it has no seat
    wire[HEADER], wire[NONCE] = header.encode(), delivery.nonce
    _note_serializer(request)
    request.jobdedup = delivery
    return delivery


def _note_serializer(request: Any) -> None:
    """Note with what the message was written: nothing in the pool knows it, and a put-off writes it again."""
    name = registry.type_to_name.get(request.content_type)
    if name and name != (request.task.serializer or request.app.conf.task_serializer):
        request.request_dict[SERIALIZER] = name


@cache
def _warn_of_newer(task: str) -> None:
    logger.error(
        "a message of %s was locked by a later version of django_jobdedup: it runs without a lock, and the "
        "lock is free only after its ttl. Upgrade the workers before the senders.",
        task,
        extra={"action": "newer_format", "task": task},
    )


def _run_without(request: Any, header: Header) -> None:
    """A store that this worker does not have: the job runs without a lock rather than fail."""
    logger.error(
        "job %s of %s names the lock store %r, which this worker does not have: it runs without a lock",
        request.id,
        request.task.name,
        header.knobs.store,
        extra={"action": "store_unknown", "task_id": request.id},
    )
    request.request_dict[HEADER] = replace(header, locks=()).encode()


def delivery_of(request: Any) -> Delivery | None:
    """Return what ``receive`` has hung on a request."""
    delivery = getattr(request, "jobdedup", None)
    return delivery if isinstance(delivery, Delivery) else None
