"""Confirming: tell the store that a message exists, in the background.

Costs no round trip on the way of a dispatch. Batches of at most 200, at most 50 ms old; flushed at
exit; emptied in a forked child (the parent confirms); synchronous where threads cannot run. Dying
before a confirm costs one possible redundant run after ``JOBDEDUP_CONFIRM_WITHIN``, never a loss.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from typing import Final

from django_jobdedup import signals
from django_jobdedup.middleware.base import Seat
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.leaving import at_end
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.results import Unavailable

#: Seats in one batch.
BATCH: Final = 200
#: Age at which a batch is sent, seconds.
DELAY: Final = 0.05
#: Batches that a store refused are tried again this often; by then the pending time is over.
TRIES: Final = 20
#: Pause before they are tried again, seconds.
PAUSE: Final = 1.0


class Confirmer:
    """The queue of seats to confirm, and the thread that empties it."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._waiting: list[tuple[Seat, int]] = []
        self._guard = threading.Lock()
        self._sending = threading.Lock()
        self._wake = threading.Event()
        self._full = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, *seats: Seat) -> None:
        """Confirm seats soon."""
        with self._guard:
            self._waiting += [(seat, 0) for seat in seats]
            full = len(self._waiting) >= BATCH
            alive = self._thread is not None and self._thread.is_alive()
        if not self._wake.is_set():  # the thread clears it before it takes the seats
            self._wake.set()
        if full:
            self._full.set()
        if not alive and not self._start():
            self.flush()

    def _start(self) -> bool:
        """Start the thread; False where threads cannot run (interpreter shutdown, some embedders)."""
        with self._guard:
            if self._thread is not None and self._thread.is_alive():
                return True
            thread = threading.Thread(target=self._work, name="jobdedup-confirm", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
            return True

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._full.wait(DELAY)
            self._wake.clear()
            self._full.clear()
            try:
                self.flush()
            except Exception as error:
                signals.report("confirm.flush", error)
            if self._waiting:  # a store does not answer
                time.sleep(PAUSE)
                self._wake.set()

    def flush(self) -> None:
        """Confirm all that waits, now, in this thread. Also waits for a batch that is being sent.

        What a store did not answer waits on, for a later flush.
        """
        again: list[tuple[Seat, int]] = []
        with self._sending:
            while batch := self._take():
                again += _send(batch)
            if again:
                with self._guard:
                    self._waiting = again + self._waiting

    def _take(self) -> list[tuple[Seat, int]]:
        with self._guard:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        return batch


def _send(batch: list[tuple[Seat, int]]) -> list[tuple[Seat, int]]:
    """Confirm a batch; return what has to be tried again because a store did not answer.

    A store that raises (it is not configured any more) takes only its own seats with it.
    """
    by_store: dict[str, list[tuple[Seat, int]]] = defaultdict(list)
    for seat, tries in batch:
        by_store[seat.store].append((seat, tries))
    again = []
    for alias, seats in by_store.items():
        try:
            answers = stores[alias].confirm([(Ref(s.shard, s.fingerprint), s.id) for s, _ in seats])
        except Exception as error:
            signals.report("confirm.flush", error)
            continue
        again += [
            (seat, tries + 1)
            for (seat, tries), answer in zip(seats, answers, strict=True)
            if isinstance(answer, Unavailable) and tries < TRIES
        ]
    return again


confirmer: Final = Confirmer()


at_end("confirm.exit", confirmer.flush)
os.register_at_fork(after_in_child=confirmer._reset)
