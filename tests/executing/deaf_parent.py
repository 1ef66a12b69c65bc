"""A worker's main process that does not hear in time that a pool process has begun a job.

That happens where it waits for a broker that does not answer. In a worker that imports this module the word
of jobs whose task ids end in ``TARDY`` is read ``SECONDS`` late. That of jobs whose ids end in ``CUT`` is
never read: at that moment the connection to the broker is lost, and Celery forgets the job.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NoReturn

from billiard.pool import ApplyResult
from celery import signals

MODULE: Final = __name__
TARDY, CUT = "-tardy", "-cut"
SECONDS: Final = 3.0

_consumers: list[Any] = []
_hear = ApplyResult._ack


@signals.worker_ready.connect(weak=False)
def _note(sender: Any, **_: Any) -> None:
    _consumers.append(sender)


def _lose_connection() -> NoReturn:
    raise _consumers[0].connection_errors[0]("cut")


def _hear_too_late(job: Any, *word: Any) -> Any:
    if job.correlation_id.endswith(TARDY):
        return threading.Timer(SECONDS, _hear, (job, *word)).start()
    if job.correlation_id.endswith(CUT) and not hasattr(_consumers[0], "was_cut"):
        _consumers[0].was_cut = True
        return _consumers[0].hub.call_soon(_lose_connection)
    return _hear(job, *word)


ApplyResult._ack = _hear_too_late
