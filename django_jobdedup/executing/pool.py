"""The pool of this worker, as far as it changes what an ending means."""

from __future__ import annotations

from typing import Any

from celery.concurrency.solo import TaskPool as Solo


class Pool:
    """What the running worker's pool does differently."""

    def __init__(self) -> None:
        self._solo = False

    def is_of(self, consumer: Any) -> None:
        """Note the pool of a consumer that has received a message."""
        self._solo = isinstance(consumer.pool, Solo)

    @property
    def acks_behind_bodies(self) -> bool:
        """Say whether an early ack leaves only after the body.

        Celery leaves the ack to its event loop, and in solo the body keeps the loop busy: a killed
        worker's message is delivered again, whatever ``acks_late`` says.
        """
        return self._solo


pool = Pool()


def comes_again(task: Any) -> bool:
    """Say whether the broker delivers the message of a running job of this task again if the worker dies."""
    return bool(task.acks_late) or pool.acks_behind_bodies
