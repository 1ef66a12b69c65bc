"""No fork while a step is taken on SQLite.

SQLite notes in the memory of the process which locks it holds. A child that is forked meanwhile (a worker
replaces a process of its pool while its main process renews leases) would inherit the note without the lock,
and find the database locked for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

#: Held during each step on SQLite, and during a fork. Re-entrant: a step may fork no child, but be nested.
_steps: Final = threading.RLock()


@contextmanager
def unforked(connection: Any) -> Iterator[None]:
    """Keep this process from forking within the block; nothing to wait for on a server's database."""
    if connection.vendor != "sqlite":
        yield
        return
    with _steps:
        yield


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_steps.acquire, after_in_parent=_steps.release, after_in_child=_steps.release)
