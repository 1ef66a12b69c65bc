"""Jobs that were revoked while they wait in this worker.

Celery throws such a message away when its turn comes, for a far eta that is days later. Until then
callers would hold the id of a job that never runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from celery.worker import state

from django_jobdedup.executing.endings import unseen
from django_jobdedup.executing.reception import delivery_of
from django_jobdedup.middleware import stack


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
