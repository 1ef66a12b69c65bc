"""Who waits for this very id, and who is publishing."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event
from typing import Any, Final

from celery.signals import beat_embedded_init, beat_init

from django_jobdedup.call import HANGING, in_body

#: Options with which Celery makes somebody wait for this id, or hang work on its end.
PROMISES: Final = ("task_id", *HANGING)
_PROMISES: Final = frozenset(PROMISES)
#: Header that Celery's beat adds to what it sends.
BEAT_HEADER = "celery_beat_task"

_is_beat = Event()


def is_promised(options: Mapping[str, Any]) -> bool:
    """Say whether somebody holds a promise for this call, so that it must never be dropped.

    The last step of a chain has no ``chain`` any more: its given task id tells.
    """
    if _PROMISES.isdisjoint(options):
        return False
    return any(options.get(name) for name in PROMISES)


def is_by_celery(app: Any, options: Mapping[str, Any]) -> bool:
    """Say whether Celery itself publishes.

    Beat; a worker around a body (link, chain step, chord body); a body that publishes its own id
    (retry, replace).
    """
    if _is_beat.is_set() or (options.get("headers") or {}).get(BEAT_HEADER):
        return True
    task = app.current_worker_task
    if task is None or task.request.is_eager:
        return False
    return not in_body.get() or bool(options.get("task_id") == task.request.id)


def _this_is_beat(**_: Any) -> None:
    _is_beat.set()


def connect() -> None:
    """Learn whether this process is beat; embedded beat runs in a process of its own as well."""
    beat_init.connect(_this_is_beat, dispatch_uid="jobdedup.beat")
    beat_embedded_init.connect(_this_is_beat, dispatch_uid="jobdedup.beat")
