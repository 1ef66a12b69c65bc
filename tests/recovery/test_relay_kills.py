"""The relay is killed by SIGKILL at every point, fifty times at each: one run a row (case U30)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from django_jobdedup.models import JobIntent
from django_jobdedup.recovery.relay import back_off
from testproject.celery import app
from testproject.embedded_redis import die_with_parent
from tests.conftest import StartWorker
from tests.dispatching.durable.conftest import Base
from tests.jobs import tasks
from tests.rig.engines import Engine
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.process import ROOT
from tests.rig.waiting import wait_for

from .outage import REFUSED, broker_at
from .zygote import POINTS

TIMES = {"postgresql": 50, "sqlite_wal": 50, "mariadb": 15, "sqlite": 10}
"""How often at each point: the relay is the same everywhere, and some engines take longer for a commit."""


class Relays:
    """Forks relays that are killed at a point."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self._log = folder / "zygote.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.recovery.zygote"],
                cwd=ROOT,
                env=environment.for_process(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - one C call
            )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def killed_at(self, point: str) -> None:
        """Have a relay killed at a point; raises AssertionError if it did not come by."""
        assert self._run(point) == -signal.SIGKILL, f"{point}: {self._log.read_text()}"

    def unharmed(self) -> None:
        """Have a relay do all there is to do."""
        assert self._run("") == 0, self._log.read_text()

    def _run(self, point: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{point}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline() or "99")


@contextmanager
def world_of(base: Base, folder: Path) -> Iterator[Relays]:
    """Give relays in the world of a test."""
    relays = Relays(base.world.having(settings=base.engine.settings_as_default), folder)
    try:
        yield relays
    finally:
        relays.close()


@pytest.fixture
def base(engine: Engine, celery_env: Environment, settings: Any, redis_client: redis.Redis) -> Base:
    """A database with a store in it."""
    settings.JOBDEDUP_STORES = engine.stores
    settings.JOBDEDUP_CONFIRM_WITHIN = 600  # nothing comes due by itself
    back_off.over()
    return Base(engine, celery_env, redis_client)


def due_now(base: Base, *, only: str | None = None) -> None:
    """Let the time pass after which anybody may publish a row."""
    rows = JobIntent.objects.using(base.using).filter(state="pending")
    rows = rows.filter(token=only) if only else rows
    rows.filter(seat="").update(publish_at=1)
    rows.exclude(seat="").update(publish_at=1, until=1, attention=1)


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.timeout(600)
@pytest.mark.environment(settings={"JOBDEDUP_CONFIRM_WITHIN": 600})
def test_one_run_a_row_wherever_the_relay_is_killed(
    base: Base, worker: StartWorker, journal: Journal, tmp_path: Path
) -> None:
    world = base.world.having(settings=base.engine.settings_as_default)
    busy = worker(world, concurrency=2)
    ids: dict[str, str] = {}
    with broker_at(app, REFUSED):
        for point in POINTS:
            for number in range(TIMES[base.engine.name]):
                with base.atomic():
                    key = f"{point} {number}"
                    ids[key] = tasks.until_executed.delay(key).id
    JobIntent.objects.using(base.using).update(**UNDECIDED)
    with world_of(base, tmp_path) as relays:
        for key, id in ids.items():
            due_now(base, only=id)
            relays.killed_at(key.rpartition(" ")[0])
        due_now(base)
        relays.unharmed()
        wait_for(
            lambda: set(base.states()) == {"done"},
            120,
            what=lambda: f"{Counter(base.states())}\n{busy.log[-2000:]}",
        )
    wait_for(lambda: base.sent() == [], 20, what="the end of the late copies")

    runs = Counter(run.id for run in journal.runs())
    assert {id: number for id, number in runs.items() if number != 1} == {}
    assert set(runs) == set(ids.values())


UNDECIDED: dict[str, Any] = {
    "seat": "", "wait_key": None, "attention": None, "until": 0, "publish_at": 2**52, "state": "pending",
}  # fmt: skip
"""As the sender has left a row that was killed right after its commit."""
