"""As sent: what Celery's own signature of a delivery forgets, for whoever publishes it again."""

from __future__ import annotations

from typing import Any, Final

from django_jobdedup.header import NONCE, SERIALIZER

#: Headers that the worker's main process adds to a delivery; they are no part of the message.
ADDED: Final = (NONCE, SERIALIZER)


def as_sent(request: Any) -> dict[str, str]:
    """Return the options that write a message as this one was written: its serializer and compression."""
    options = {"serializer": request.get(SERIALIZER), "compression": request.get("compression")}
    return {name: value for name, value in options.items() if value}
