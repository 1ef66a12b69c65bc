"""The pool of this worker, as far as it changes what an ending means."""

from __future__ import annotations

import os
from typing import Any

from celery.concurrency.solo import TaskPool as Solo


class Pool:
    """What the running worker's pool does differently."""

    def __init__(self) -> None:
        self._solo = False
        self._main = 0

    def is_of(self, consumer: Any) -> None:
        """Note the pool of a consumer that has received a message."""
        self._solo = isinstance(consumer.pool, Solo)
        self._main = os.getpid()

    @property
    def is_here(self) -> bool:
        """Say whether bodies run in the process that receives their messages: in every pool but prefork."""
        return self._main == os.getpid()

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
