"""How a body ended, read from what it raised (measured on Celery 5.7)."""

from __future__ import annotations

from typing import Any

from celery.exceptions import Ignore, Reject, Retry

from django_jobdedup.call import Ending, Running
from django_jobdedup.executing.broker import visibility_timeout
from django_jobdedup.executing.pool import pool
from django_jobdedup.header import Header, Knobs
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.releasing import copies_live
from django_jobdedup.outcomes import How


def unseen(
    app: Any, task: str, header: Header, reason: str, *, nonce: str = "", ahead: float = 0.0
) -> Ending:
    """Return the ending of a delivery that no body saw the end of.

    The closed id is remembered for as long as a copy may come, ``ahead`` seconds longer.
    """
    return Ending(
        task=task,
        id=header.id,
        header=header,
        nonce=nonce,
        reason=reason,
        marker_ttl=ahead + copies_live(header.knobs, visibility_timeout(app)),
        counted=stack.counts_in_store(),
    )


def succeeded(current: Running) -> tuple[How, str]:
    """Return how a body that returned gives its seat back."""
    if current.republished:
        return How.HANDOVER, "retry"
    return _good(current), "success"


def retries_in_place(current: Running, ended_with: object) -> bool:
    """Say whether Celery starts this body again as soon as it has ended: an eager retry.

    ``ended_with`` is what the body raised or returned (``retry(throw=False)``).
    """
    if not (current.execution.eager and isinstance(ended_with, Retry)):
        return False
    retry: Any = ended_with  # its annotations miss the two
    return bool(retry.is_eager and retry.sig is not None)


def _good(current: Running) -> How:
    return How.KEEP if _knobs(current).keeps else How.RELEASE


def _knobs(current: Running) -> Knobs:
    """The knobs of the lock; for a bypassed call, which has none, those that keep nothing."""
    header = current.execution.header
    return header.knobs if header.locks else Knobs()


def failed(current: Running, error: BaseException) -> tuple[How | None, str]:
    """Return how a body that raised gives its seat back; None when the main process decides.

    A retry or replace is recognised by "this body has published its own id", never by the
    exception: a cold shutdown raises Retry without publishing, and a body may fail after its retry.
    """
    if current.republished:
        return How.HANDOVER, "retry"
    if isinstance(error, Reject):
        if getattr(error, "requeue", False):
            return (How.REQUEUE if _acks_late(current) else How.RELEASE), "reject"
        return _failure(current), "reject"
    if isinstance(error, Ignore):
        return _good(current), "ignore"
    if isinstance(error, Retry):
        return How.RELEASE, "retry"
    if isinstance(error, Exception):
        return _failure(current), "failure"
    return _exit(current, error), "exit"


def _failure(current: Running) -> How:
    knobs = _knobs(current)
    return How.KEEP if knobs.keeps and knobs.keep_on_failure else How.RELEASE


def _exit(current: Running, error: BaseException) -> How | None:
    """The process is told to go (terminate, hard limit, cold shutdown) or the body calls ``sys.exit``.

    With late ack the broker may deliver the message again, so the seat waits; the main process frees
    it if it acks after all. With ``retry_on_worker_lost`` the main process publishes the id again. Whether
    it was a failure, which may keep the lock, or a revoke, only the main process knows; where the body
    runs in that process itself, Celery hears of no end, and nobody would decide later.
    """
    if _is_hard_limit(current, error):
        return How.REQUEUE if is_back_at_timeout(current.execution.task_object) else _failure(current)
    here, kept = current.execution.eager or pool.is_here, _failure(current) is How.KEEP
    if _acks_late(current) and (here or not kept):
        return How.REQUEUE
    if here:
        return _failure(current) if isinstance(error, SystemExit) else How.RELEASE
    task: Any = current.execution.task_object
    told_there = kept or getattr(task, "retry_on_worker_lost", False)
    return None if told_there else How.RELEASE


def _is_hard_limit(current: Running, error: BaseException) -> bool:
    """Whether Celery's hard limit has cut the body short in gevent: before 5.7 nobody hears of it later."""
    if type(error).__name__ != "Timeout":
        return False
    task: Any = current.execution.task_object
    return bool((task.request.timelimit or (None,))[0] or task.time_limit)


def is_back_at_timeout(task: Any) -> bool:
    """Say whether a message that hit its hard limit goes back to the broker: its seat waits for it."""
    acks = getattr(task, "acks_on_timeout", None)  # Celery 5.7; before, one option for failure and timeout
    return bool(task.acks_late) and not (task.acks_on_failure_or_timeout if acks is None else acks)


def _acks_late(current: Running) -> bool:
    """Whether the message is the broker's still; in solo an early ack counts, though it leaves later."""
    execution = current.execution
    return bool(execution.late_for and getattr(execution.task_object, "acks_late", False))


def is_lost_by_ack(current: Running, error: BaseException) -> bool:
    """Say whether Celery would ack a message whose body it has cut short, and so lose the job.

    At a cold shutdown gevent's and eventlet's pools do, even with late ack: to them a killed greenlet has
    succeeded. One that was killed by a revoke shall not come again.
    """
    if current.how is not How.REQUEUE or type(error).__name__ != "GreenletExit":
        return False
    from celery.worker import state  # loads all of Celery's worker

    return current.execution.id not in state.revoked
