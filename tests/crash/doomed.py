"""A worker with a process for each of several trials, killed when each has come to its point."""

from __future__ import annotations

import os
import signal
import threading
import time

from tests.rig.forking import Forked, Zygote
from tests.rig.process import alive
from tests.rig.waiting import wait_for

NOTICED = 0.2
"""Seconds in which Redis has noticed that a connection was closed."""
PATIENCE = 80.0
"""Seconds that those who have come wait for the others."""


class Doomed:
    """One worker over one queue, killed once all *number* parties have called ``kill`` or ``give_up``."""

    def __init__(self, zygote: Zygote, queue: str, number: int) -> None:
        self.queue = queue
        self._worker: Forked = zygote.work(queue, concurrency=number).wait_until_ready()
        self._guard = threading.Lock()
        self._awaited = number
        self._come: set[object] = set()
        self._dead = threading.Event()
        self._at = 0.0

    @property
    def log(self) -> str:
        """All it has written."""
        return self._worker.log

    def kill(self, party: object) -> float:
        """Wait for the others and for the death; give its moment."""
        self.give_up(party)
        assert self._dead.wait(PATIENCE), "others have not come to their points"
        return self._at

    def give_up(self, party: object) -> None:
        """Have the others not wait any longer for this one; it may have come before."""
        with self._guard:
            last = party not in self._come and len(self._come) == self._awaited - 1
            self._come.add(party)
        if last:
            self._strike()

    def _strike(self) -> None:
        # It leads a session, so that its pool dies in the same instant.
        self._at = time.monotonic()
        os.killpg(self._worker.pid, signal.SIGKILL)
        wait_for(lambda: not alive(self._worker.pid), 5, what="the death of a worker")
        # Redis would hand the next message to a dead worker whose connection it has not seen close.
        time.sleep(NOTICED)
        self._dead.set()
