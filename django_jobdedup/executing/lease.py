"""The lease thread of the worker's main process.

Renews the leases of what its pool runs, confirms messages that it has received, and frees the seats
of revoked jobs, and of terminated ones once their process is really gone. A killed worker renews
nothing: its keys are free after one lease. Threads run while a body keeps the main process busy (solo)
as well.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from celery.worker import state

from django_jobdedup import signals
from django_jobdedup.call import Ending
from django_jobdedup.executing.losing import look_into
from django_jobdedup.executing.presence import presence
from django_jobdedup.executing.processes import is_gone, is_still_in
from django_jobdedup.executing.reception import Delivery, delivery_of
from django_jobdedup.executing.requests import remembered
from django_jobdedup.executing.revoked import end_revoked
from django_jobdedup.executing.unheard import unheard_of
from django_jobdedup.middleware import stack
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.results import Lost, Renewed, Unavailable

#: Renewals in one lease: two may fail before it lapses.
RENEWALS: Final = 3
#: Longest and shortest pause between two rounds, seconds.
SLOWEST: Final = 10.0
FASTEST: Final = 0.1
#: How often a dying process is looked at, seconds, and for how long; then at each round only.
LOOK: Final = 0.05
PATIENCE: Final = 10.0


@dataclass(slots=True)
class Dying:
    """A delivery whose process or greenlet has been told to go; its seat is free when it has gone."""

    delivery: Delivery
    ending: Ending
    request: Any
    since: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        """Return the seconds since it was told."""
        return time.monotonic() - self.since


class LeaseKeeper:
    """The thread, and what it looks after."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._dying: list[Dying] = []
        self._pause = SLOWEST
        self._last_round = time.monotonic()

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

    def due_in(self) -> float:
        """Return the seconds until the next round, at the pace of the shortest lease seen so far."""
        return max(0.0, self._last_round + self._pause - time.monotonic())

    def _work(self) -> None:
        while True:
            young = any(dying.age < PATIENCE for dying in self._dying)
            self._wake.wait(min(LOOK, self.due_in()) if young else self.due_in())
            self._wake.clear()
            _guarded("lease.bury", self._bury)
            if not self.due_in():
                self._last_round = time.monotonic()
                _guarded("lease.renew", self.renew)
                _guarded("lease.confirm", lambda: _confirm(_deliveries(waiting_requests())))
                _guarded("lease.revoked", lambda: end_revoked(waiting_requests()))
                _guarded("lease.presence", presence.refresh)

    def renew(self) -> None:
        """Renew every lease once."""
        _renew([*running_deliveries(), *(dying.delivery for dying in self._dying)])

    def _bury(self) -> None:
        for dying in list(self._dying):
            # Over: the body has ended, or never began, in a process that did not go.
            if dying.delivery.is_over(dying.age) or not is_still_in(dying.request):
                self._dying.remove(dying)
                stack.ended(dying.ending)


def _guarded(where: str, step: Callable[[], None]) -> None:
    try:
        step()
    except Exception as error:
        signals.report(where, error)


def running_deliveries() -> list[Delivery]:
    """Return the deliveries that the pool has accepted and not ended, and those it has not been heard of.

    Not those of a lost process: Celery may need ten seconds to learn of it, the lease lapses sooner.
    """
    active = set(_copied(state.active_requests))
    unheard = unheard_of(set(_copied(state.reserved_requests)) - active)
    return [*_deliveries(request for request in active if not is_gone(request.worker_pid)), *unheard]


def waiting_requests() -> list[Any]:
    """Return the received requests that wait in this process, for their eta or for the pool."""
    scheduled = getattr(state, "scheduled_requests", None)  # Celery 5.7
    active = set(_copied(state.active_requests))
    waiting = remembered() if scheduled is None else _copied(scheduled)
    return [request for request in {*waiting, *_copied(state.reserved_requests)} if request not in active]


def _copied(requests: Iterable[Any]) -> list[Any]:
    while True:
        try:
            return list(requests)
        except RuntimeError:  # the main thread has changed the set meanwhile
            continue


def _deliveries(requests: Iterable[Any]) -> list[Delivery]:
    found = (delivery_of(request) for request in requests)
    return [delivery for delivery in found if delivery is not None]


def _renew(deliveries: list[Delivery]) -> None:
    for alias, group in _by_store(deliveries).items():
        answers = stores[alias].renew([delivery.token for delivery in group])
        for delivery, answer in zip(group, answers, strict=True):
            _note(delivery, answer)


def _note(delivery: Delivery, answer: object) -> None:
    """Look into a lost lease if it is news: before the first renewal the pool may not have claimed yet."""
    if isinstance(answer, Renewed):
        delivery.renewed_at, delivery.missed = time.monotonic(), False
    elif isinstance(answer, Lost):
        delivery.missed = True
        if delivery.renewed_at and not delivery.ending:
            look_into(delivery)


def _confirm(deliveries: list[Delivery]) -> None:
    """The message is here, so it exists: its sender may have died before saying so."""
    unsaid = [each for each in deliveries if not each.confirmed and each.header.knobs.at_dispatch]
    for alias, group in _by_store(unsaid).items():
        answers = stores[alias].confirm([(delivery.token.ref, delivery.token.id) for delivery in group])
        for delivery, answer in zip(group, answers, strict=True):
            delivery.confirmed = not isinstance(answer, Unavailable)


def _by_store(deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    groups: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        groups[delivery.header.knobs.store].append(delivery)
    return groups


keeper: Final = LeaseKeeper()
