"""Messages that never become a request: refused, for an unknown task, or with a body that nobody can read.

Celery puts them away for good, so their waiting seats are free.
"""

from __future__ import annotations

import functools
from typing import Any

from celery.worker.consumer import Consumer

from django_jobdedup import signals
from django_jobdedup.executing.endings import unseen
from django_jobdedup.header import HEADER, Header
from django_jobdedup.middleware import stack


def on_rejected(sender: Any, message: Any, **_: Any) -> None:
    """Free the seat of a message that the worker refuses (content type, invalid task)."""
    _free(sender.app, message, "rejected")


def on_unknown(sender: Any, message: Any, **_: Any) -> None:
    """Free the seat of a message for a task that the worker does not know."""
    _free(sender.app, message, "unknown")


def install() -> None:
    """Join the end of an undecodable message, for which Celery has no signal; safe to call again."""
    original = Consumer.on_decode_error
    if hasattr(original, "jobdedup"):
        return

    @functools.wraps(original)
    def on_decode_error(self: Any, message: Any, exc: Exception) -> None:
        original(self, message, exc)
        try:
            _free(self.app, message, "undecodable")
        except Exception as error:
            signals.report("unread.on_decode_error", error)

    on_decode_error.jobdedup = True  # type: ignore[attr-defined]
    setattr(Consumer, "on_decode_error", on_decode_error)  # noqa: B010 - mypy knows no better way


def _free(app: Any, message: Any, reason: str) -> None:
    headers = message.headers or {}
    header = Header.decode(headers.get(HEADER))
    if header is None or not header.locks or header.id != headers.get("id"):
        return  # or it travels with a message of somebody else
    stack.ended(unseen(app, str(headers.get("task", "")), header, reason))
