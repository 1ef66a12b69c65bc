"""The storm: many equal calls and some distinct ones, from several threads, over some seconds."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from testproject.shop.runs import spelled

from .facts import Asked

TENANTS = 7
EQUAL_CALLS = 1400
"""Recomputations asked for, of ``TENANTS`` tenants: 200 each."""

PERIODS = tuple(f"2026-{month:02}" for month in range(1, 13))
"""Each tenant wants the report of each of these once: 84 distinct jobs."""

THREADS = 8
LASTS = 6.0
"""Seconds over which the calls are spread."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call to make."""

    task: Any
    args: tuple[Any, ...]


class Storm:
    """Makes all calls in the background; a context manager, which waits for its threads.

    ``begin()`` within it: an interrupt in the midst of the beginning has to find somebody who stops it.
    ``asked`` holds what was asked so far. ``check()`` raises what a call raised.
    """

    def __init__(self, calls: Sequence[Wanted]) -> None:
        self.asked: list[Asked] = []
        self._calls = calls
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="storm")
        self._stopped = threading.Event()
        self._futures: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """Begin to call."""
        start = time.time()
        for place, call in enumerate(self._calls):
            due = start + LASTS * place / len(self._calls)
            self._futures.append(self._pool.submit(self._ask, call, due))

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def over(self) -> bool:
        """Whether every call was made."""
        return len(self.asked) == len(self._calls)

    def check(self) -> None:
        """Raise the error of the first call that failed."""
        for future in self._futures:
            if future.done() and not future.cancelled():
                future.result()

    def stop(self) -> None:
        """Make no further call, and wait for those under way."""
        self._stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _ask(self, wanted: Wanted, due: float) -> None:
        if self._stopped.wait(max(0.0, due - time.time())):
            return
        before = time.time()
        result = wanted.task.delay(*wanted.args)
        duplicate = bool(getattr(result, "duplicate", False))
        call = spelled(wanted.task.__name__, *wanted.args)
        self.asked.append(Asked(call, result.id, duplicate, before, time.time()))


def storm() -> Storm:
    """Make tenants with invoices, and the storm of calls about them, in random order."""
    from testproject.shop.tasks import build_report, recompute_tenant

    tenants = make_tenants()
    calls = [Wanted(recompute_tenant, (tenants[n % TENANTS],)) for n in range(EQUAL_CALLS)]
    calls += [Wanted(build_report, (tenant, period)) for tenant in tenants for period in PERIODS]
    random.shuffle(calls)
    return Storm(calls)


def make_tenants() -> list[int]:
    """Write tenants, each with a paid invoice in every period; gives their ids."""
    from testproject.shop.models import Invoice, Tenant

    tenants = [Tenant.objects.create(name=f"Tenant {number}") for number in range(1, TENANTS + 1)]
    Invoice.objects.bulk_create(
        Invoice(tenant=tenant, number=period, amount=tenant.pk * 10, paid_at=f"{period}-03T10:00:00Z")
        for tenant in tenants
        for period in PERIODS
    )
    return [tenant.pk for tenant in tenants]
