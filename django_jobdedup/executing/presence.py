"""The presence key: this worker's queues are attended by this app."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from django_jobdedup.stores.handler import stores

#: How long a presence key lives, seconds: senders keep locking while workers are down for days.
LIVES: Final = 30 * 86400.0
#: How often a running worker leaves it anew, seconds.
AGAIN: Final = 3600.0

_due = 0.0


def announce(queues: Iterable[str]) -> None:
    """Leave the presence key of each queue in every store."""
    global _due
    _due = time.monotonic() + AGAIN
    names = list(queues)
    if names:
        for alias in stores:
            stores[alias].announce(names, LIVES)


def refresh_presence(queues: Iterable[str]) -> None:
    """Leave the keys anew, once an hour."""
    if time.monotonic() >= _due:
        announce(queues)
