"""Finishes that the store could not take, tried again until it can.

A job that ended while its store was down must not keep its key: with early ack a lapsed lease would
free it, with late ack nothing would for hours. Tried once a second by one thread per process.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from django_jobdedup import signals
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.requests import Finish
from django_jobdedup.stores.results import Unavailable

#: More than this many waiting finishes are not kept: then leases and the reaper do it.
MOST = 10_000
#: Pause between two tries, seconds.
PAUSE = 1.0

_waiting: deque[tuple[str, Finish]] = deque(maxlen=MOST)
_thread: threading.Thread | None = None
_guard = threading.Lock()


def finish_later(alias: str, request: Finish) -> None:
    """Keep a finish for a store that does not answer."""
    global _thread
    with _guard:
        _waiting.append((alias, request))
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_work, name="jobdedup-later", daemon=True)
            _thread.start()


def _work() -> None:
    global _thread
    while True:
        time.sleep(PAUSE)
        try:
            drain()
        except Exception as error:
            signals.report("stores.later", error)
        with _guard:  # with finish_later(): nothing is added between the look and the end
            if not _waiting:
                _thread = None
                return


def drain() -> None:
    """Try every waiting finish once, in order; stop at the first that is refused again."""
    while _waiting:
        alias, request = _waiting[0]
        if isinstance(stores[alias].finish(request), Unavailable):
            return
        _waiting.popleft()


def _forget_in_child() -> None:
    """A forked child inherits the queue but not the thread: the parent does the work."""
    global _thread, _guard
    _waiting.clear()
    _thread, _guard = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
