"""The relay is killed by SIGKILL at every point, fifty times at each: one run a row (case U30)."""

from __future__ import annotations

import signal
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
from tests.conftest import StartWorker
from tests.dispatching.durable.conftest import Base
from tests.jobs import tasks
from tests.rig.engines import Engine
from tests.rig.environment import Environment
from tests.rig.forking import Zygote
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for

from .killed import POINTS
from .outage import REFUSED, broker_at

TIMES = {"postgresql": 25, "sqlite_wal": 12, "mariadb": 6, "sqlite": 6}
"""How often at each point: the relay is the same everywhere, and some engines take longer for a commit."""


class Relays:
    """Forks relays that are killed at a point."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote

    def killed_at(self, point: str) -> None:
        """Have a relay killed at a point; raises AssertionError if it did not come by."""
        assert self._zygote.order("relay", point=point) == -signal.SIGKILL, f"{point}: {self._zygote.log}"

    def unharmed(self) -> None:
        """Have a relay do all there is to do."""
        assert self._zygote.order("relay", point="") == 0, self._zygote.log


@contextmanager
def world_of(base: Base, folder: Path) -> Iterator[Relays]:
    """Give relays in the world of a test."""
    world = base.world.having(settings=base.engine.settings_as_default)
    with Zygote(world, folder, "tests.recovery.killed") as zygote:
        yield Relays(zygote)


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
