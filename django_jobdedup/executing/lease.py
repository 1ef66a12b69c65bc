"""The lease thread of the worker's main process.

Renews the leases of what its pool runs, confirms far-off messages it has received, and frees the
seats of terminated jobs once their process is really gone. A killed worker renews nothing: its keys
are free after one lease. Threads run while a body keeps the main process busy (solo) as well.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from celery.worker import state

from django_jobdedup import signals
from django_jobdedup.call import Ending
from django_jobdedup.executing.presence import presence
from django_jobdedup.executing.reception import Delivery, delivery_of
from django_jobdedup.middleware import stack
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.results import Lost, Renewed

#: Renewals in one lease: two may fail before it lapses.
RENEWALS: Final = 3
#: Longest and shortest pause between two rounds, seconds.
SLOWEST: Final = 10.0
FASTEST: Final = 0.1
#: How often a dying process is looked at, seconds.
LOOK: Final = 0.05


@dataclass(slots=True)
class Dying:
    """A delivery whose pool process has been told to go; its seat is free when it has gone."""

    delivery: Delivery
    ending: Ending
    pid: int | None


class LeaseKeeper:
    """The thread, and what it looks after."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._dying: list[Dying] = []
        self._pause = SLOWEST
        self._next_round = 0.0

    def start(self) -> None:
        """Start the thread; safe to call again."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="jobdedup-lease", daemon=True)
            self._thread.start()

    def look_after(self, delivery: Delivery) -> None:
        """Keep the pace that the lease of a received delivery needs."""
        pause = max(FASTEST, delivery.token.lease / RENEWALS)
        if pause < self._pause:
            self._pause = pause
            self._wake.set()

    def watch(self, dying: Dying) -> None:
        """Free a seat as soon as its process is gone."""
        dying.delivery.ending = True
        self._dying.append(dying)
        self._wake.set()

    def _work(self) -> None:
        while True:
            self._wake.wait(LOOK if self._dying else self._pause)
            self._wake.clear()
            try:
                self._bury()
                if time.monotonic() >= self._next_round:
                    self._next_round = time.monotonic() + self._pause * 0.9
                    self.round()
            except Exception as error:
                signals.report("lease.round", error)

    def round(self) -> None:
        """Renew every lease once."""
        _renew([*running_deliveries(), *(dying.delivery for dying in self._dying)])
        _confirm(far_deliveries())
        presence.refresh()

    def _bury(self) -> None:
        for dying in list(self._dying):
            if not is_alive(dying.pid):
                self._dying.remove(dying)
                stack.ended(dying.ending)


def running_deliveries() -> list[Delivery]:
    """Return the deliveries that the pool has accepted and not ended."""
    return _deliveries(state.active_requests)


def far_deliveries() -> list[Delivery]:
    """Return the received deliveries that wait in this process for their eta."""
    return _deliveries(getattr(state, "scheduled_requests", ()))


def _deliveries(requests: Iterable[Any]) -> list[Delivery]:
    while True:
        try:
            copied = list(requests)
            break
        except RuntimeError:  # the main thread has changed the set meanwhile
            continue
    found = (delivery_of(request) for request in copied)
    return [delivery for delivery in found if delivery is not None]


def _renew(deliveries: list[Delivery]) -> None:
    by_store: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        by_store[delivery.header.knobs.store].append(delivery)
    for alias, group in by_store.items():
        answers = stores[alias].renew([delivery.token for delivery in group])
        for delivery, answer in zip(group, answers, strict=True):
            _note(delivery, answer)


def _note(delivery: Delivery, answer: object) -> None:
    """Tell a lost lease once, if it is news.

    Before the first renewal the pool may not have claimed yet; a single miss may be a body that ended
    just now, before its result came back to this process.
    """
    if isinstance(answer, Renewed):
        delivery.renewed, delivery.missed = True, False
    elif isinstance(answer, Lost) and delivery.renewed and not delivery.ending:
        if delivery.missed:
            delivery.renewed = False
            signals.send(
                signals.lock_lost, None, id=delivery.header.id, fingerprint=delivery.header.fingerprint
            )
        delivery.missed = not delivery.missed


def _confirm(deliveries: list[Delivery]) -> None:
    """The message is here, so it exists: its sender may have died before saying so."""
    by_store: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        if not delivery.confirmed and delivery.header.knobs.at_dispatch:
            delivery.confirmed = True
            by_store[delivery.header.knobs.store].append(delivery)
    for alias, group in by_store.items():
        stores[alias].confirm([(delivery.token.ref, delivery.header.id) for delivery in group])


def is_alive(pid: int | None) -> bool:
    """Say whether a pool process still runs; False for none, for this one, and for a zombie."""
    if pid is None or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True


keeper: Final = LeaseKeeper()
