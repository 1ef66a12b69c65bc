"""Putting off: the same id is published again, then this delivery ends; never acked away.

Chord, chain and group options stay, so does the user's retry budget. ``Ignore`` ends the delivery
without counting in a chord. Where a durable store keeps the call, the relay publishes what a broker that is
down does not take.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Final, Never

from celery.exceptions import Ignore, Reject
from kombu.exceptions import EncodeError, OperationalError

from django_jobdedup.call import Execution, untouched
from django_jobdedup.executing.broker import longest_sleep, sleeps_until
from django_jobdedup.header import HEADER
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.middleware.as_sent import ADDED, as_sent
from django_jobdedup.middleware.base import NotStarted
from django_jobdedup.middleware.keeping import durable

logger = logging.getLogger("django_jobdedup")

#: Shortest sleep: a put-off must not spin, seconds.
SHORTEST: Final = 0.1
#: Pauses between tries of a publish that failed; with early ack this message is the only one left.
PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Errors of a broker that is down.
DOWN: Final = (OperationalError, OSError)


def put_off(task: Any, execution: Execution, stop: NotStarted) -> Never:
    """Publish this delivery again under its id and end it. Raises Ignore.

    Where another message of it sleeps already, this one is not published.
    """
    if stop.asleep:
        logger.info(
            "%s[%s] was woken too soon, and sleeps on",
            execution.task,
            execution.id,
            extra={"action": "sleeps_on", "task": execution.task, "task_id": execution.id},
        )
        raise Ignore("its other message sleeps")
    request = task.request
    after = max(SHORTEST, min(stop.after, longest_sleep(task.app)))
    header = execution.header
    if stop.strategy:
        until = sleeps_until(stop.after, after)
        header = replace(header, put_offs=header.put_offs + 1, asleep_until=until)
    # Celery would make a job without a parent a child of its own.
    headers = {**(request.headers or {}), "parent_id": request.parent_id, HEADER: header.encode()}
    for name in ADDED:
        headers.pop(name, None)
    signature = task.signature_from_request(
        request, retries=request.retries, countdown=after, headers=headers
    ).set(**as_sent(request))
    _publish(signature, execution, after, late=bool(task.acks_late))
    _log(execution, stop.by, after)
    raise Ignore("put off")


def _log(execution: Execution, by: str, after: float) -> None:
    """Say it at INFO: a strategy chose it, so it is no news, but the answer to "why does it not run?"."""
    behind = " behind another delivery of itself" if by == execution.id else f" behind job {by}" if by else ""
    logger.info(
        "%s[%s] is put off%s, again in %.3g s",
        execution.task,
        execution.id,
        behind,
        after,
        extra={"action": "put_off", "task": execution.task, "task_id": execution.id, "holder_id": by},
    )


def _publish(signature: Any, execution: Execution, after: float, *, late: bool) -> None:
    """Publish without any lock: a put-off that can be published calls nothing at all in the store.

    With late ack a failed publish sends the message itself back; with early ack it is gone from the
    broker already, so the publish is tried for a while before the error ends the job, visibly.
    """
    for pause in (*PAUSES, None):
        try:
            with untouched():
                signature.apply_async(add_to_parent=False)
            return
        except EncodeError:
            raise  # no broker will ever take it
        except Exception as error:
            if late:
                raise Reject(f"cannot be put off: {error}", requeue=True) from error
            if isinstance(error, DOWN) and _is_left_to_the_relay(execution, after, error):
                return
            if pause is None:
                raise
            time.sleep(pause)


def _is_left_to_the_relay(execution: Execution, after: float, error: Exception) -> bool:
    """Make the row of the job due when its next message would be; False where no row waits."""
    store = durable(execution.header.knobs.store) if execution.header.locks else None
    if store is None:
        return False
    words = f"it could not be put off: {type(error).__name__}: {error}"
    return isinstance(store.missed(ref_of(execution.header), execution.header.token, words, after), int)
