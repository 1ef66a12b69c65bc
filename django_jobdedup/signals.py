"""Six signals, and the receivers that log them.

Sender is the task class where the process has it, else None. Receivers run in the process in which
the thing happens: a dispatch in the caller, an execution in the pool's process, an ending that no
body sees in the worker's main process. A receiver that raises is logged and never breaks a job.
"""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

logger = logging.getLogger("django_jobdedup")

#: A dispatch was decided. Arguments: ``call``, ``outcome``, ``holder_id``, ``fingerprint``, ``error``.
dispatch_decided = Signal()
#: A start was decided. Arguments: ``execution``, ``decision`` (a ``Start``), ``by``.
execution_decided = Signal()
#: A holder gave its lock back at its end, not at a retry or where the lock is kept. Arguments: ``ending``.
lock_released = Signal()
#: A running holder learned that its lock is not its own any more. Arguments: ``id``, ``fingerprint``.
lock_lost = Signal()
#: The store did not answer. Arguments: ``store`` (alias), ``verb``, ``error`` (text).
store_unavailable = Signal()
#: Code of ours failed where it must not break a job. Arguments: ``where``, ``error`` (exception).
internal_error = Signal()

SIGNALS = {
    "dispatch_decided": dispatch_decided,
    "execution_decided": execution_decided,
    "lock_released": lock_released,
    "lock_lost": lock_lost,
    "store_unavailable": store_unavailable,
    "internal_error": internal_error,
}


def send(signal: Signal, sender: object, **payload: Any) -> None:
    """Send a signal; a receiver that raises never reaches the job (Django logs it, ``django.dispatch``)."""
    if signal.receivers:
        signal.send_robust(sender, **payload)


def report(where: str, error: Exception) -> None:
    """Send ``internal_error`` for an exception that was caught at ``where``."""
    send(internal_error, None, where=where, error=error)


def log_lost(sender: object, id: str, fingerprint: str, **_: Any) -> None:
    """Log a lock that its running holder has lost."""
    logger.warning(
        "job %s no longer holds lock %s: its lease lapsed, another job may run beside it",
        id,
        fingerprint[:12],
        extra={"action": "lock_lost", "task_id": id, "fingerprint": fingerprint},
    )


def log_unavailable(sender: object, store: str, verb: str, error: str, **_: Any) -> None:
    """Log a store that did not answer."""
    logger.warning(
        "lock store %r is unavailable (%s): %s",
        store,
        verb,
        error,
        extra={"action": "store_unavailable", "store": store, "verb": verb},
    )


def log_internal(sender: object, where: str, error: Exception, **_: Any) -> None:
    """Log a failure of our own with its traceback."""
    logger.error("internal error in %s: %r", where, error, exc_info=error, extra={"action": "internal_error"})


def connect_logging() -> None:
    """Connect the log receivers; safe to call again."""
    lock_lost.connect(log_lost, dispatch_uid="jobdedup.log")
    store_unavailable.connect(log_unavailable, dispatch_uid="jobdedup.log")
    internal_error.connect(log_internal, dispatch_uid="jobdedup.log")
