"""Say what a dispatch became, to whoever listens."""

from __future__ import annotations

from django_jobdedup import signals
from django_jobdedup.middleware.base import Dispatch


def announce(done: Dispatch) -> None:
    """Send ``dispatch_decided``."""
    if not signals.dispatch_decided.receivers:
        return
    signals.send(
        signals.dispatch_decided,
        type(done.call.task_object) if done.call.task_object is not None else None,
        call=done.call,
        outcome=done.outcome,
        holder_id=done.id,
        fingerprint=done.fingerprint,
        error=done.error,
    )
