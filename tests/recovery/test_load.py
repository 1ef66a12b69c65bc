"""The clean-up beside a mixed load: it frees nothing that is in use (case U13)."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_jobdedup.recovery.duty import Tally, never
from django_jobdedup.recovery.freeing import free
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Holder
from django_jobdedup.stores.results import Doubt
from tests.conftest import StartWorker
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.redelivery import FAST_REDELIVERY
from tests.rig.waiting import wait_for

LASTS = 25.0
PARKED, WAITING_FOR_ETA, RETRYING = 1000, 5, 3
MIXED = (
    tasks.until_executed,
    tasks.until_executed_late,
    tasks.while_executing,
    tasks.until_and_while_executing,
    tasks.until_executing,
)


def doubts() -> Iterator[tuple[Any, Doubt]]:
    """Doubt every seat that only its message keeps, however young: more than the reaper ever does."""
    store = stores["default"]
    for shard in range(store.shards):
        records = store.list_locks(shard, limit=100_000)
        assert isinstance(records, list)
        for record in records:
            for holder in record.holders:
                if holder.state == "W" or _has_lapsed(holder, record.now):
                    yield store, Doubt(record.ref, record.name, holder)


def _has_lapsed(holder: Holder, now: float) -> bool:
    return holder.state == "R" and holder.lease < now


class Sweeper(threading.Thread):
    """Reaps and frees in a loop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.tally = Tally()
        self.passes = 0
        self.looked = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.5):
            doubtful = list(doubts())
            self.looked += len(doubtful)
            self.tally += reap(never)
            self.tally += free(doubtful, patience=1.0)
            self.passes += 1

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """Sweep within the block."""
        self.start()
        try:
            yield
        finally:
            self._over.set()
            self.join()


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.timeout(150)
@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")
@pytest.mark.environment(celery={"broker_transport_options": FAST_REDELIVERY, "worker_lost_wait": 1.0})
def test_nothing_in_use_is_freed_and_of_a_killed_worker_exactly_its_runs(
    celery_env: Environment, worker: StartWorker, journal: Journal
) -> None:
    first = worker(concurrency=4)
    parked = {n: tasks.until_executed.apply_async((f"parked{n}",), queue="parked").id for n in range(PARKED)}
    etas = [tasks.until_executed.apply_async((f"eta{n}",), countdown=30.0).id for n in range(WAITING_FOR_ETA)]
    retries = [tasks.retrying.delay(f"retry{n}", 1, 30.0).id for n in range(RETRYING)]
    long = tasks.until_executed.delay("long", 10.0).id
    journal.wait_for_runs(RETRYING + 1)
    sweeper = Sweeper()
    with sweeper.sweeping():
        second = worker(concurrency=4)
        assert tasks.until_executed.delay("long").id == long
        load(LASTS - 12)
        assert [tasks.until_executed.delay(f"eta{n}").id for n in range(WAITING_FOR_ETA)] == etas
        assert [tasks.retrying.delay(f"retry{n}", 1, 30.0).id for n in range(RETRYING)] == retries
        load(12)
        wait_for(lambda: is_quiet(journal), 30, what="the end of the load")

    assert sweeper.passes > 5
    assert sweeper.looked > 5 * PARKED
    assert sweeper.tally == {}
    assert journal.overlaps("long") == []
    assert {key: pairs for key in keys(journal) if (pairs := journal.overlaps(key))} == {}
    runs = Counter(run.key for run in journal.runs())
    assert [runs[f"eta{n}"] for n in range(WAITING_FOR_ETA)] == [1] * WAITING_FOR_ETA
    assert [runs[f"retry{n}"] for n in range(RETRYING)] == [2] * RETRYING
    assert runs["long"] == 1
    again = {n: tasks.until_executed.apply_async((f"parked{n}",), queue="parked").id for n in parked}
    assert again == parked

    second.stop()
    for number in range(3):
        tasks.until_executed.delay(f"doomed{number}", 60.0)
    wait_for(lambda: sum(run.key.startswith("doomed") for run in journal.runs()) == 3, 10, what="the doomed")
    first.kill()
    swept = Tally()
    wait_for(lambda: swept.update(once()) or swept["lost"] >= 3, 15, what=lambda: f"the lost: {swept}")
    swept += once()
    assert (swept["lost"], swept["freed"]) == (3, 0)
    assert len(list(doubts())) == PARKED


def once() -> Tally:
    """Reap, then free what was doubtful before: what lapses in between is left to the next reaping."""
    doubtful = list(doubts())
    return reap(never) + free(doubtful, patience=0.1)


def load(seconds: float) -> None:
    """Call tasks of every kind on a few keys."""
    chosen = random.Random(7)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        task = chosen.choice(MIXED)
        task.delay(f"{task.__name__}-{chosen.randrange(6)}", chosen.choice((0.0, 0.05, 0.3)))
        time.sleep(0.03)


def keys(journal: Journal) -> set[str]:
    """Those whose runs must not overlap."""
    return {run.key for run in journal.runs() if not run.key.startswith("until_executing-")}


def is_quiet(journal: Journal) -> bool:
    """Say whether all that ran has ended, and nothing but the parked waits."""
    return len(journal.ended()) == len(journal.runs()) and len(list(doubts())) == PARKED
