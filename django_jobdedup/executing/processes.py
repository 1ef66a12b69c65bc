"""Pool processes, by the pid that Celery reports for an accepted job.

Only prefork runs a job in a process of its own. Solo and threads report the main process, gevent and
eventlet the address of a greenlet, which is found by the request.
"""

from __future__ import annotations

import os
from typing import Any


def is_still_in(request: Any) -> bool:
    """Say whether what runs the body of a request has not gone yet: a process of the pool or a greenlet."""
    reference = request._apply_result
    greenlet = None if reference is None else reference()
    return getattr(greenlet, "dead", True) is False or is_alive(request.worker_pid)


def is_gone(pid: int | None) -> bool:
    """Say whether the pool process that ran a job has ended, reaped or not."""
    return _is_of_pool(pid) and not _lives(pid)


def is_alive(pid: int | None) -> bool:
    """Say whether a pool process still runs; False for none and for what is no process."""
    return _is_of_pool(pid) and _lives(pid)


def _is_of_pool(pid: int | None) -> bool:
    return pid is not None and 0 < pid < 2**31 and pid != os.getpid()


def _lives(pid: int | None) -> bool:
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True
