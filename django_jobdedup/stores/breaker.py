"""A breaker: after a failure the store is left alone for a moment, so a dead one costs one timeout."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable

#: Seconds for which a store is left alone after its first failure, and at most.
PAUSE = 1.0
MAX_PAUSE = 5.0


class Breaker:
    """Counts no requests and no rates: one failure opens it, the pause doubles while probes fail.

    When a pause is over, one caller is let through as a probe; the others are refused until it is back.
    """

    def __init__(
        self,
        pause: float = PAUSE,
        max_pause: float = MAX_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.error = ""
        self._first, self._most, self._clock = pause, max_pause, clock
        self._closed, self._probing, self._until, self._pause = True, False, 0.0, pause
        self._lock = threading.Lock()
        _breakers.add(self)

    def refuses(self) -> bool:
        """Say whether the caller must not ask the store now."""
        if self._closed:
            return False
        with self._lock:
            now = self._clock()
            if self._closed or now < self._until:
                return not self._closed
            # A probe that never comes back must not shut the store out for ever.
            self._until, self._probing = now + self._most, True
            return False

    def failed(self, error: str) -> None:
        """Open, or stay open for longer when it was the probe that failed."""
        with self._lock:
            if self._closed:
                self._pause = self._first
            elif self._probing:
                self._pause = min(self._pause * 2, self._most)
            else:
                return  # a call that began before the breaker opened says nothing new
            self.error, self._closed, self._probing = error, False, False
            self._until = self._clock() + self._pause

    def worked(self) -> None:
        """Close."""
        if self._closed:
            return
        with self._lock:
            self._closed, self._probing = True, False

    def _forget(self) -> None:
        """Start with a lock of one's own: in a forked child the old one may be held by nobody alive."""
        self._lock = threading.Lock()
        self._closed, self._probing, self._until, self._pause = True, False, 0.0, self._first


_breakers: weakref.WeakSet[Breaker] = weakref.WeakSet()


def _forget_all() -> None:
    for breaker in list(_breakers):
        breaker._forget()


os.register_at_fork(after_in_child=_forget_all)
