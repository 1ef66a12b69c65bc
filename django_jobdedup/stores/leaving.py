"""The end of a process: last calls before it leaves.

``atexit`` is not enough: children of multiprocessing leave by ``os._exit``, and so do those of a
worker's pool, which make the calls from Celery's ``worker_process_shutdown``.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from multiprocessing.util import Finalize, register_after_fork
from typing import Any, Final

from django_jobdedup import signals

_calls: Final[list[tuple[str, Callable[[], None]]]] = []


def at_end(where: str, call: Callable[[], None]) -> None:
    """Make a call at the end of this process and of every child that it forks."""
    _calls.append((where, call))


def make_calls(*_: Any, **__: Any) -> None:
    """Make the last calls; one that fails is reported and stops nobody from leaving."""
    for where, call in _calls:
        try:
            call()
        except Exception as error:
            signals.report(where, error)


def _in_child(_: object) -> None:
    Finalize(None, make_calls, exitpriority=0)


atexit.register(make_calls)
register_after_fork(make_calls, _in_child)
