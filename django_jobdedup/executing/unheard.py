"""Bodies of which the main process has not heard yet, or never will.

A pool process says that it has begun a job, and may not be heard for long: the main process waits for a
broker that does not answer. When the connection to the broker is lost then, Celery forgets such a job, whose
body goes on. Its lease is renewed all the same.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from celery.worker import state
from celery.worker.consumer import Consumer

from django_jobdedup import signals
from django_jobdedup.executing.processes import is_alive
from django_jobdedup.executing.reception import Delivery, delivery_of


@dataclass(frozen=True, slots=True)
class Unheard:
    """A delivery that was written to a process of the pool."""

    delivery: Delivery
    pid: int
    since: float = field(default_factory=time.monotonic)

    @property
    def may_run(self) -> bool:
        """Say whether its body runs, or may begin at any moment."""
        return is_alive(self.pid) and not self.delivery.is_over(time.monotonic() - self.since)


#: Those that Celery has forgotten; few, and only after the connection was lost.
_forgotten: Final[list[Unheard]] = []


def unheard_of(requests: Iterable[Any]) -> list[Delivery]:
    """Return the deliveries among received requests, and among forgotten ones, that a process was given."""
    for each in list(_forgotten):
        if not each.may_run:
            _forgotten.remove(each)
    given = [each for each in _given(requests) if is_alive(each.pid)]
    return [each.delivery for each in (*given, *_forgotten)]


def _given(requests: Iterable[Any]) -> list[Unheard]:
    """Only prefork's pool notes to which process a job was written; the others are heard at once."""
    found = []
    for request in requests:
        delivery, reference = delivery_of(request), request._apply_result
        job = None if reference is None else reference()
        pid = getattr(getattr(job, "_write_to", None), "pid", None)
        if delivery is not None and pid is not None:
            found.append(Unheard(delivery, pid))
    return found


def install() -> None:
    """Note what Celery forgets when the connection to the broker is lost; safe to call again."""
    original = Consumer.on_close
    if hasattr(original, "jobdedup"):
        return

    @functools.wraps(original)
    def on_close(self: Any) -> None:
        try:
            _forgotten.extend(_given(set(state.reserved_requests) - set(state.active_requests)))
        except Exception as error:
            signals.report("unheard.on_close", error)
        original(self)

    on_close.jobdedup = True  # type: ignore[attr-defined]
    setattr(Consumer, "on_close", on_close)  # noqa: B010 - mypy knows no better way
