"""Jobs that were revoked, or have expired, before they ran.

Celery throws such a message away when its turn comes, for a far eta that is days later. Until then
callers would hold the id of a job that never runs.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any

from celery.worker import state
from celery.worker.request import Request

from django_jobdedup import signals
from django_jobdedup.executing.endings import unseen
from django_jobdedup.executing.reception import delivery_of
from django_jobdedup.header import HEADER, Header
from django_jobdedup.middleware import stack


def install() -> None:
    """Have a job that is thrown away end before its result says so; safe to call again.

    Celery's signal comes after the result: who has read that and calls again would join the ended job.
    """
    original = getattr(Request, "_announce_revoked")  # noqa: B009 - mypy knows no better way
    if hasattr(original, "jobdedup"):
        return

    @functools.wraps(original)
    def announce(self: Any, reason: str, terminated: bool, *rest: Any) -> None:
        if not terminated:
            try:
                _end(self, reason)
            except Exception as error:
                signals.report("revoked.announce", error)
        original(self, reason, terminated, *rest)

    announce.jobdedup = True  # type: ignore[attr-defined]
    setattr(Request, "_announce_revoked", announce)  # noqa: B010 - mypy knows no better way


def _end(request: Any, reason: str) -> None:
    delivery = delivery_of(request)
    if delivery is not None and delivery.ending:
        return  # told before, while the message waited here
    header = Header.decode(request.request_dict.get(HEADER))
    if header is None or not header.locks or header.id != request.id:
        return  # or it travels with a message of somebody else
    nonce = delivery.nonce if delivery is not None else ""
    stack.ended(unseen(request.task.app, request.task.name, header, reason, nonce=nonce))


def end_revoked(requests: Iterable[Any]) -> None:
    """Free the waiting seats of revoked requests.

    The closed id is remembered beyond the eta: a worker that has forgotten the revoke at a restart
    gets the message again, and must not run it.
    """
    for request in requests:
        delivery = delivery_of(request)
        if delivery is None or delivery.ending or request.id not in state.revoked:
            continue
        delivery.ending = True
        task = request.task
        ahead = max(0.0, request.eta.timestamp() - time.time()) if request.eta else 0.0
        stack.ended(unseen(task.app, task.name, delivery.header, "revoked", ahead=ahead))
