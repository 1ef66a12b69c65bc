"""The name of this process, for people who ask who holds a lock."""

from __future__ import annotations

import os
import socket
from functools import cache


@cache
def _name(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}"


def process_name() -> str:
    """Return ``host:pid``; right in a forked child as well."""
    return _name(os.getpid())
