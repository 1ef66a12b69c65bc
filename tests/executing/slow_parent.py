"""A worker's main process that hears too late that a pool process has begun a job.

That happens under load: the process has died before its word was read, so Celery's pool gives the job to
another one. In a worker that imports this module each delivery whose first process dies meets it. The word
of the dead process is read after that of the second one for task ids that end in ``LATE``, else never.
"""

from __future__ import annotations

from typing import Any

from billiard.pool import ApplyResult

MODULE = __name__
LATE = "-late"

_hear = ApplyResult._ack


def _hear_too_late(job: Any, *word: Any) -> Any:
    first = getattr(job, "first_word", None)
    if first is None:
        job.first_word = word
        return None
    answer = _hear(job, *word)
    if job.correlation_id.endswith(LATE):
        _hear(job, *first)
    return answer


ApplyResult._ack = _hear_too_late
