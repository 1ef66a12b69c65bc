"""The end of a process: a last call before it leaves.

``atexit`` is not enough: children of multiprocessing and of a worker's pool leave by ``os._exit``.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from multiprocessing.util import Finalize, register_after_fork
from typing import Any

from celery.signals import worker_process_shutdown

from django_jobdedup import signals


class LastCall:
    """One call at the end of this process and of every child that it forks."""

    def __init__(self, where: str, call: Callable[[], None]) -> None:
        self._where, self._call = where, call
        atexit.register(self.make)
        register_after_fork(self, LastCall._in_child)
        worker_process_shutdown.connect(self.make, weak=False, dispatch_uid=f"jobdedup.{where}")

    def _in_child(self) -> None:
        Finalize(None, self.make, exitpriority=0)

    def make(self, *_: Any, **__: Any) -> None:
        """Make the call; a failure is reported and stops nobody from leaving."""
        try:
            self._call()
        except Exception as error:
            signals.report(self._where, error)
