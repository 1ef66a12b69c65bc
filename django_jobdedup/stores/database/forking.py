"""No fork while a step is taken on SQLite.

SQLite notes in the memory of the process which locks it holds. A child that is forked meanwhile (a worker
replaces a process of its pool while its main process renews leases) would inherit the note without the lock,
and find the database locked for ever.

A step inside somebody's open transaction is not kept apart from forks: that transaction has its locks before
and after the step as well. It must not wait here either: the step it would wait for may wait for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

#: Held during a step that is alone on SQLite, and during a fork. Re-entrant: a step forks none, but nests.
_steps: Final = threading.RLock()


@contextmanager
def unforked(connection: Any, *, alone: bool) -> Iterator[None]:
    """Keep this process from forking within the block; nothing to wait for on a server's database.

    ``alone``: the step is a transaction of its own.
    """
    if connection.vendor != "sqlite" or not alone:
        yield
        return
    with _steps:
        yield


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_steps.acquire, after_in_parent=_steps.release, after_in_child=_steps.release)
