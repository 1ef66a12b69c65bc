"""Finishes that the store could not take, tried again until it can.

A job that ended while its store was down must not keep its key: with early ack a lapsed lease would
free it, with late ack nothing would for hours. Tried once a second by one thread per process.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Final

from django_jobdedup import signals
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.requests import Finish
from django_jobdedup.stores.results import Unavailable

#: More than this many waiting finishes are not kept: then leases and the reaper do it.
MOST: Final = 10_000
#: Pause between two tries, seconds.
PAUSE: Final = 1.0


class Later:
    """The waiting finishes, and the thread that tries them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything. A forked child does: it inherits the queue but not the thread."""
        self._waiting: deque[tuple[str, Finish]] = deque(maxlen=MOST)
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, alias: str, request: Finish) -> None:
        """Keep a finish for a store that does not answer."""
        with self._guard:
            self._waiting.append((alias, request))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="jobdedup-later", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            time.sleep(PAUSE)
            try:
                self.drain()
            except Exception as error:
                signals.report("stores.later", error)
            with self._guard:  # with add(): nothing comes between the look and the end
                if not self._waiting:
                    self._thread = None
                    return

    def drain(self) -> None:
        """Try every waiting finish once, in order; stop at the first that is refused again."""
        while self._waiting:
            alias, request = self._waiting[0]
            if isinstance(stores[alias].finish(request), Unavailable):
                return
            self._waiting.popleft()


later: Final = Later()
os.register_at_fork(after_in_child=later.reset)
