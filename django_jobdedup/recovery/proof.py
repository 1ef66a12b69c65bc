"""Is it really gone? A message is, when no broker of this process has it anywhere.

A message in a worker's hands is noted by the broker until it is acknowledged. With early ack there is a
moment between that and the claim in which it is nowhere, and a worker that has just popped it has not
noted it yet: so what was not found is looked for once more, after a time longer than those moments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from celery import Celery, current_app
from celery._state import _get_active_apps  # type: ignore[attr-defined]
from celery.loaders.default import Loader as FallbackLoader

from django_jobdedup.brokers.handler import broker_for
from django_jobdedup.brokers.unreadable import Unreadable

#: Seconds between the two looks; RabbitMQ's counts are as old as that.
PATIENCE: Final = 15.0


def vanished(task_ids: Collection[str], patience: float = PATIENCE) -> frozenset[str]:
    """Return those whose message is in no queue, priority list or delayed queue and in no worker's hands.

    Each broker is read once, whatever the number of ids; only what is missing from all of them is gone.
    Raises Unreadable when one of them cannot be read in full.
    """
    missing = frozenset(task_ids)
    for app in _apps():
        if missing:
            _assure(app)
            missing = broker_for(app).find(missing, patience=patience).missing
    return missing


def _apps() -> Iterator[Any]:
    """Give one Celery app for each broker that this process knows."""
    known: set[str] = set()
    here: Any = current_app._get_current_object()  # type: ignore[attr-defined]
    for app in (here, *(each for each in _get_active_apps() if _is_used(each))):
        where = _address(app)
        if where not in known:
            known.add(where)
            yield app


def _assure(app: Any) -> None:
    """Raise Unreadable where messages are written to another broker than the one that is read here."""
    written, read = app.conf.broker_write_url, app.conf.broker_read_url or app.conf.broker_url
    if written and written != read:
        raise Unreadable(
            "broker_write_url is not broker_read_url: a message may be on its way between the two, where "
            "nobody can look, so no message is surely gone."
        )


def _is_used(app: Celery) -> bool:
    """Not what Celery makes up where code asks for an app before there is one."""
    return not isinstance(app.loader, FallbackLoader)


def _address(app: Any) -> str:
    options = app.conf.broker_transport_options or {}
    return f"{app.conf.broker_read_url or app.conf.broker_url}|{sorted(options.items(), key=str)}"
