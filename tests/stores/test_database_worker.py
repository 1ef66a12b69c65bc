"""The database store under a real worker: runs, retries, kills, a database that restarts (case U48).

Everything is played once per engine, side by side: the waits of one story are the waits of all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_jobdedup.models import JobIntent
from testproject.celery import app
from tests.executing import tasks
from tests.executing.conftest import IMPORTS, call_until_accepted, swept
from tests.recovery.outage import Wire
from tests.rig.engines import Engine, Engines
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal, Run
from tests.rig.redelivery import FAST_REDELIVERY
from tests.rig.worker import Worker

pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(150)]

LEASES = 5
RESTART, ITS_LEASE = 1.0, 6
"""Seconds for which a restarted database lets nobody in, and the lease of the run that lives through it."""


QUEUES = {"early": "victim", "late": "victim", "long": "main", "restart": "shaken"}


@dataclass(frozen=True, slots=True)
class Story:
    """What happened: the runs by key, and seconds from the kill until the next call was accepted."""

    engine: Engine
    journal: Journal
    freed_after: dict[str, float]

    def runs(self, key: str) -> list[Run]:
        """Give the runs of a key."""
        return self.journal.runs(key)

    def states(self, key: str) -> list[str]:
        """Give the states of the rows of the calls that ran under a key, in order of acceptance."""
        ids = {run.id for run in self.runs(key)}
        rows = JobIntent.objects.using(self.engine.alias).order_by("id")
        return [row.state for row in rows if row.token in ids]


def wired(engine: Engine, stack: ExitStack) -> tuple[Engine, Callable[[], None]]:
    """Give the engine as a worker sees it, and what restarts its server; SQLite has none."""
    if engine.name.startswith("sqlite"):
        return engine, lambda: None
    wire = Wire(int(engine.database["PORT"]), engine.database["HOST"])
    stack.callback(wire.cut)
    database = {**engine.database, "HOST": "127.0.0.1", "PORT": str(wire.port)}
    return replace(engine, database=database), lambda: wire.restart(RESTART)


@pytest.fixture(scope="module", params=["sqlite_wal", "postgresql", "mariadb"])
def story(
    request: pytest.FixtureRequest,
    redis_server: Any,
    engines: Engines,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Story]:
    """Play everything."""
    folder = tmp_path_factory.mktemp("database")
    with engines.open(request.param) as engine, ExitStack() as stack:
        yield play(engine, redis_server.url, folder, stack)


def play(engine: Engine, redis_url: str, folder: Path, stack: ExitStack) -> Story:
    """Play everything: with a worker that is killed, its successor, and one whose database restarts."""
    celery = {**IMPORTS, "broker_transport_options": FAST_REDELIVERY}
    environment = Environment(new_namespace(), redis_url, celery=celery)
    stack.callback(environment.clean)
    stack.enter_context(environment.entered(app))
    stack.enter_context(override_settings(JOBDEDUP_STORES=engine.stores))
    stack.enter_context(swept())
    seen, restart = wired(engine, stack)

    def start(queue: str, concurrency: int, through: Engine = engine) -> Worker:
        theirs = environment.having(settings=through.settings)
        return stack.enter_context(Worker(theirs, folder, queues=[queue], concurrency=concurrency))

    started = [start("victim", 2), start("main", 3), start("shaken", 1, seen)]
    victim, *_ = [worker.wait_until_ready() for worker in started]
    journal = stack.enter_context(closing(Journal(redis_url, environment.namespace)))
    pool = stack.enter_context(ThreadPoolExecutor(4))
    told = Story(engine, journal, {})
    tasks.early.apply_async(("simple", "succeed"), queue="main")
    tasks.early.apply_async(("retry", "retry", 0.2), queue="main")
    tasks.early.apply_async(("open", "leave_open"), queue="main")
    tasks.early.apply_async(("long", "succeed", LEASES * tasks.LEASE), queue="main")
    lease = {"lease": ITS_LEASE}
    tasks.early.apply_async(("restart", "succeed", ITS_LEASE + 2), queue="shaken", unique=lease)
    tasks.early.apply_async(("early", "succeed_once", 60), queue="victim")
    tasks.late.apply_async(("late", "succeed_once", 60), queue="victim")
    for key in ("long", "restart", "early", "late"):
        journal.wait_for_runs(1, key)
    tasks.late.apply_async(("waiting",), queue="victim")
    time.sleep(tasks.LEASE)  # a lease renewed at least once
    restarted = pool.submit(restart)
    victim.kill()
    killed = time.monotonic()
    accepted = {kind: pool.submit(next_call, engine, kind) for kind in QUEUES}
    start("victim", 4)
    restarted.result()
    for kind, future in accepted.items():
        told.freed_after[kind] = future.result() - killed
    journal.wait_for_ends(1, "waiting", timeout=30)
    for key, count in (("early", 1), ("late", 2), ("long", 2), ("restart", 2), ("retry", 2)):
        journal.wait_for_ends(count, key, timeout=30)
    wait_until_nothing_is_held(engine)
    return told


def next_call(engine: Engine, key: str) -> float:
    """Call again until the call is accepted; say when that was."""
    task, queue = tasks.late if key == "late" else tasks.early, QUEUES[key]
    try:
        call_until_accepted(lambda: task.apply_async((key,), queue=queue), timeout=40, every=0.1)
        return time.monotonic()
    finally:
        connections[engine.alias].close()


def wait_until_nothing_is_held(engine: Engine) -> None:
    """Wait until every body has given its seat back."""
    until = time.monotonic() + 10
    while JobIntent.objects.using(engine.alias).held().exists():
        held = list(JobIntent.objects.using(engine.alias).held().values("token", "state", "seat"))
        assert time.monotonic() < until, held
        time.sleep(0.05)


def test_a_job_runs_once_and_its_row_says_so(story: Story) -> None:
    assert [run.how for run in story.runs("simple")] == ["returned"]
    assert story.states("simple") == ["done"]


def test_a_retry_keeps_its_row(story: Story) -> None:
    assert [run.how for run in story.runs("retry")] == ["Retry", "JobError"]
    assert story.states("retry") == ["failed"]


def test_a_transaction_that_a_body_leaves_open_does_not_take_its_end_along(story: Story) -> None:
    assert [run.how for run in story.runs("open")] == ["returned"]
    assert story.states("open") == ["done"]


def test_a_killed_worker_frees_the_key_of_an_early_ack_after_one_lease(story: Story) -> None:
    assert tasks.LEASE * 2 / 3 - 0.2 < story.freed_after["early"] < tasks.LEASE + 1
    assert story.states("early") == ["lost", "done"]


def test_a_late_ack_keeps_the_key_for_its_redelivery(story: Story) -> None:
    cut_off, again, after = story.runs("late")
    assert (cut_off.how, again.how, after.how) == (None, "returned", "returned")
    # Put off once where it came back before the lease had ended: then it is no redelivery to Celery.
    assert (cut_off.id == again.id, after.id == again.id) == (True, False)
    assert story.states("late") == ["done", "done"]


def test_what_the_worker_had_only_received_runs_once_elsewhere(story: Story) -> None:
    assert [run.how for run in story.runs("waiting")] == ["returned"]


def test_a_healthy_run_of_five_leases_is_never_overlapped(story: Story) -> None:
    first, second = story.runs("long")
    assert (first.how, second.how) == ("returned", "returned")
    assert not first.overlaps(second)


def test_a_database_that_restarts_during_a_run_takes_nothing_from_it(story: Story) -> None:
    """The connections break and for a second nobody gets in; the lease is renewed as soon as it can be."""
    first, second = story.runs("restart")
    assert first.ended is not None
    assert first.ended - first.started > ITS_LEASE
    assert not first.overlaps(second)
    assert story.states("restart") == ["done", "done"]


@pytest.mark.parametrize("key", ["early", "late", "long", "restart", "retry"])
def test_no_two_runs_of_a_key_overlap(story: Story, key: str) -> None:
    assert story.journal.overlaps(key) == []
