"""Releases that the store could not take, or not over this thread's connection, tried again until it can.

A job that ended while its store was down must not keep its key: with early ack a lapsed lease would
free it, with late ack nothing would for hours. Tried once a second by one thread per process, and for
some seconds more by a process that leaves.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from django.db import connections

from django_jobdedup import signals
from django_jobdedup.stores.leaving import at_end

#: More than this many waiting releases are not kept: then leases and the reaper do it.
MOST: Final = 10_000
#: Pause between two tries, seconds.
PAUSE: Final = 1.0
#: How long a process that leaves goes on trying, seconds.
PATIENCE: Final = 5.0
#: Asks the store once more; False while it does not answer.
Step = Callable[[], bool]


class Later:
    """The waiting steps, and the thread that tries them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything. A forked child does: it inherits the queue but not the thread."""
        self._waiting: deque[Step] = deque(maxlen=MOST)
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, step: Step) -> None:
        """Keep a step for a store that does not answer."""
        with self._guard:
            self._waiting.append(step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="jobdedup-later", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            time.sleep(PAUSE)
            self.drain()
            connections.close_all()  # those of this thread, which nobody else would close
            with self._guard:  # with add(): nothing comes between the look and the end
                if not self._waiting:
                    self._thread = None
                    return

    def drain(self) -> None:
        """Try every waiting step once; keep those whose store does not answer yet."""
        for _ in range(len(self._waiting)):
            step = self._waiting.popleft()
            try:
                done = step()
            except Exception as error:
                signals.report("stores.later", error)
                continue
            if not done:
                self._waiting.append(step)

    def finish(self) -> None:
        """Try until nothing waits, for a few seconds: this process is about to leave."""
        until = time.monotonic() + PATIENCE
        while self._waiting:
            self.drain()
            if time.monotonic() > until:
                return
            if self._waiting:
                time.sleep(PAUSE / 4)


later: Final = Later()
at_end("stores.later", later.finish)
os.register_at_fork(after_in_child=later.reset)
