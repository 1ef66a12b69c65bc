"""A world and a worker for a whole module: starting one costs seconds, so its tests share it by key.

A folder takes these fixtures into its conftest, and gives there, as ``for_world`` and ``for_node``, the
Celery options and the worker's that all its modules have.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from django_jobdedup.dispatching.confirm import confirmer
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis

from .environment import Environment, new_namespace
from .journal import Journal
from .worker import Worker


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, redis_server: GivenRedis | EmbeddedRedis, for_world: Mapping[str, Any]
) -> Iterator[Environment]:
    """The world of this module; its options stand in the module as ``WORLD``."""
    options = getattr(request.module, "WORLD", {})
    environment = Environment(new_namespace(), redis_server.url, **options).having(celery=for_world)
    with environment.entered(app):
        yield environment
        confirmer.flush()
    environment.clean()


@pytest.fixture(scope="module")
def for_node() -> Mapping[str, Any]:
    """The options of every worker of this folder: none."""
    return {}


@pytest.fixture(scope="module")
def node(
    request: pytest.FixtureRequest,
    world: Environment,
    for_node: Mapping[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Worker]:
    """The worker of this module; its options stand in the module as ``NODE``."""
    options = {**for_node, **getattr(request.module, "NODE", {})}
    with Worker(world, tmp_path_factory.mktemp("node"), **options) as worker:
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
