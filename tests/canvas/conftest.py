"""One world with one worker for the tests of the canvas."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from testproject.celery import app
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import tasks

#: Seconds for which a test waits for what must come.
WAIT = 30


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, redis_server: Any) -> Iterator[Environment]:
    """The world of this module; its options stand in the module as ``WORLD``."""
    options = getattr(request.module, "WORLD", {})
    environment = Environment(new_namespace(), redis_server.url, **options)
    environment = environment.having(celery={"imports": [tasks.MODULE], "worker_lost_wait": 0.5})
    with environment.entered(app):
        yield environment
    environment.clean()


@pytest.fixture(scope="module")
def node(world: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """The worker of this module."""
    with Worker(world, tmp_path_factory.mktemp("canvas"), concurrency=6) as worker:
        yield worker.wait_until_ready()


@pytest.fixture(scope="module")
def diary(world: Environment) -> Iterator[Journal]:
    """What ran in this module's world."""
    with contextlib.closing(Journal(world.redis_url, world.namespace)) as journal:
        yield journal


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"key-{secrets.token_hex(4)}"
