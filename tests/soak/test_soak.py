"""Calls under fire: workers die every other second, and there is no overlap, nothing lost, nothing left.

``SOAK_CALLS=100000`` makes a hundred thousand of them; where every push waits there are fewer.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from testproject.embedded_redis import EmbeddedRedis
from tests.rig.engines import Engine

from .play import play
from .scene import Scene, scene, world

CALLS = int(os.environ.get("SOAK_CALLS") or 40_000)
SECONDS = CALLS * 60.0 / 100_000
FEWER, SHORTER = 2_000, 8.0
"""Calls and seconds over a database, which costs more a call."""

pytestmark = [
    pytest.mark.worker,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(300),
    # Celery's own way of storing a result.
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
]


@pytest.fixture
def seed() -> int:
    """What everything random is made from; give it again as ``SOAK_SEED``."""
    return int(os.environ.get("SOAK_SEED") or secrets.randbelow(1_000_000))


@pytest.fixture
def over_redis(lock_server: EmbeddedRedis, tmp_path: Path) -> Iterator[Scene]:
    """A world on a Redis of its own."""
    here = world(lock_server.url, tmp_path)
    yield from scene(here, here)


@pytest.fixture
def over_postgresql(lock_server: EmbeddedRedis, postgresql_engine: Engine, tmp_path: Path) -> Iterator[Scene]:
    """The same with its locks in a database."""
    base = world(lock_server.url, tmp_path)
    here = base.having(settings={"JOBDEDUP_STORES": postgresql_engine.stores})
    yield from scene(here, base.having(settings=postgresql_engine.settings))


def test_many_calls_under_fire(over_redis: Scene, seed: int, tmp_path: Path) -> None:
    soaked(over_redis, tmp_path, seed, CALLS, SECONDS)
    remains = over_redis.remains()
    assert (remains.locks, remains.index, remains.eternal) == ((), (), ())


def test_the_database_store_under_fire(over_postgresql: Scene, seed: int, tmp_path: Path) -> None:
    soaked(over_postgresql, tmp_path, seed, FEWER, SHORTER)


def soaked(stage: Scene, folder: Path, seed: int, calls: int, seconds: float) -> None:
    """Play it, and have it judged."""
    played = play(stage, folder, seed, calls, seconds)
    played.tell()
    wrongs = played.wrongs(stage)
    assert not wrongs, "\n".join([f"seed {seed}:", *wrongs])
    assert len(played.calls) == calls
    assert stage.locks() == []
    assert stage.messages() == 0
