"""As sent: what Celery's own signature of a delivery forgets, for whoever publishes it again."""

from __future__ import annotations

from typing import Any, Final

from django_jobdedup.header import NONCE, SERIALIZER

#: Headers that the worker's main process adds to a delivery; they are no part of the message.
ADDED: Final = (NONCE, SERIALIZER)


def as_sent(request: Any) -> dict[str, str]:
    """Return the options that write a message as this one was written.

    Its serializer, its compression, and what it shows of its arguments: that may hide secrets.
    """
    kept = ("compression", "argsrepr", "kwargsrepr")
    options = {"serializer": request.get(SERIALIZER), **{name: request.get(name) for name in kept}}
    return {name: value for name, value in options.items() if value}
