"""Workers first: is a worker with this app known for a queue?

A lock that no worker knows would never be released. So a dispatch only locks for queues on which a
worker has left its presence key. A yes is kept for the life of the process, a no is asked again after
half a minute.
"""

from __future__ import annotations

import logging
import time

from django_jobdedup.conf import conf
from django_jobdedup.stores.handler import stores

logger = logging.getLogger("django_jobdedup")

#: Seconds between two questions for one queue.
ASK_EVERY = 30.0

_known: set[tuple[str, str]] = set()
_asked: dict[tuple[str, str], float] = {}
_warned: set[tuple[str, str]] = set()


def is_attended(alias: str, queue: str) -> bool:
    """Say whether locks may be taken for jobs on this queue.

    A store that does not answer counts as yes: what then happens is the policy's ``on_store_error``.
    """
    place = (alias, queue)
    if place in _known or not conf.REQUIRE_WORKER:
        return True
    store = stores[alias]
    if not store.needs_presence:
        return True
    now = time.monotonic()
    if now - _asked.get(place, -ASK_EVERY) < ASK_EVERY:
        return False
    answer = store.announced(queue)
    if answer is False:
        _asked[place] = now
        _warn(place)
        return False
    if answer is True:
        _known.add(place)
    return True


def _warn(place: tuple[str, str]) -> None:
    if place in _warned:
        return
    _warned.add(place)
    logger.warning(
        "no worker with django_jobdedup has been seen on queue %r, so its jobs are not locked yet: "
        "deploy and restart the workers first (a lock store that has lost its memory knows running workers "
        "again within half a minute). JOBDEDUP_REQUIRE_WORKER = False locks without asking.",
        place[1],
        extra={"action": "unattended", "queue": place[1]},
    )


def forget() -> None:
    """Forget what was learned; for tests and after the stores were configured anew."""
    _known.clear()
    _asked.clear()
    _warned.clear()
