"""Messages that a test leaves in Celery's memory broker, which lives as long as the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kombu.transport.memory import Channel


@contextmanager
def dropped() -> Iterator[None]:
    """Take away what the block has put into the queues: a worker of a later test must not run it."""
    before = {_id(message) for queue in list(Channel.queues.values()) for message in list(queue.queue)}
    try:
        yield
    finally:
        for queue in list(Channel.queues.values()):
            with queue.mutex:
                older = [message for message in queue.queue if _id(message) in before]
                queue.queue.clear()
                queue.queue.extend(older)


def _id(message: Any) -> Any:
    return (message.get("headers") or {}).get("id")
