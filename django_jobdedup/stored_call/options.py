"""Which options of a call travel in a stored one, and in which form.

A stored call is published later, perhaps by another process: what counts from now becomes an instant,
what exists in this process only is left out, and what would change the destination is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kombu import Exchange, Queue

from django_jobdedup.exceptions import StoredCallError

#: Options of this process and this moment: whoever publishes has its own.
LEFT_OUT: Final = frozenset(("countdown", "producer", "publisher", "result_cls", "task_id", "task_type"))
#: Options that name another destination by an object, with what to write instead.
REFUSED: Final = {
    "connection": "leave it out, so that it goes through the app's own broker",
    "router": "name the queue with queue=, or put the router into task_routes",
    "declare": "declare the queue in task_queues and name it with queue=",
}


def travelling(task: str, options: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the options to store; ``now`` (aware) is the moment that countdown and expires count from.

    Raises StoredCallError for an option that cannot be kept.
    """
    for name, instead in REFUSED.items():
        if options.get(name) is not None:
            raise StoredCallError(
                f"{task} was not queued: its option {name}= cannot be stored, and this task's store keeps "
                f"every call until it is published; {instead}."
            )
    kept = {name: value for name, value in options.items() if name not in LEFT_OUT and name not in REFUSED}
    kept.update(_place(options))
    if countdown := options.get("countdown"):
        kept["eta"] = _ahead(now, countdown)
    for name in ("eta", "expires"):
        value = kept.get(name)
        if isinstance(value, datetime):
            kept[name] = value.isoformat()
    if isinstance(kept.get("expires"), int | float):
        kept["expires"] = _ahead(now, kept["expires"])
    return kept


def _ahead(now: datetime, seconds: float) -> str:
    return (now + timedelta(seconds=float(seconds))).astimezone(UTC).isoformat()


def _place(options: Mapping[str, Any]) -> dict[str, Any]:
    """Queue and exchange by name: the publisher's app knows them, or makes them as Celery does."""
    found: dict[str, Any] = {}
    queue, exchange = options.get("queue"), options.get("exchange")
    if isinstance(queue, Queue):
        found["queue"] = queue.name
    if isinstance(exchange, Exchange):
        found["exchange"] = exchange.name
        found["exchange_type"] = options.get("exchange_type") or exchange.type
    return found
