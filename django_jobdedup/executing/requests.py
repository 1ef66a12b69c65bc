"""The requests this worker has received, by task id; forgotten as Celery forgets them."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from django_jobdedup.executing.reception import Delivery, delivery_of

# By nonce, not by id: a broker may deliver one id twice to the same worker.
_requests: WeakValueDictionary[str, Any] = WeakValueDictionary()


def remember(request: Any, delivery: Delivery) -> None:
    """Remember a received request for as long as Celery keeps it."""
    _requests[delivery.nonce] = request


def remembered() -> list[Any]:
    """Return all of them, ended ones for a moment as well."""
    return list(_requests.values())


def requests_of(task_id: str) -> list[tuple[Any, Delivery]]:
    """Return the requests of one id with their deliveries."""
    found = ((request, delivery_of(request)) for request in remembered())
    return [
        (request, delivery) for request, delivery in found if delivery is not None and request.id == task_id
    ]
