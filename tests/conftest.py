"""Fixtures for every test: the Redis of this run and a namespace of its own for each test."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version

import pytest
import redis

from testproject.embedded_redis import EmbeddedRedis, GivenRedis

from .rig.plugin import SERVER


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which versions ran, so that a log alone tells what was tested."""
    names = ("Django", "celery", "kombu", "redis", "django-redis")
    server = config.stash[SERVER]
    with redis.Redis.from_url(server.url) as client:
        found = client.info("server")["redis_version"]
    kind = "given by REDIS_URL" if isinstance(server, GivenRedis) else "embedded"
    libraries = ", ".join(f"{name} {version(name)}" for name in names)
    return [f"versions: Python {platform.python_version()}, {libraries}", f"redis server: {found}, {kind}"]


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> GivenRedis | EmbeddedRedis:
    """The Redis of this run, with its ``url``. Share it: no flush, no stop; see ``lock_server`` for those."""
    return pytestconfig.stash[SERVER]


@pytest.fixture
def redis_client(redis_server: GivenRedis | EmbeddedRedis) -> Iterator[redis.Redis]:
    """A plain client of the Redis of this run, decoding replies."""
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        yield client


@pytest.fixture
def lock_server() -> Iterator[EmbeddedRedis]:
    """A second, private Redis that a test may stop, pause and flush."""
    with EmbeddedRedis() as server:
        yield server


def need(condition: bool, what: str) -> None:
    """Skip at home, fail in CI, when a big server (RabbitMQ, PostgreSQL) is not there."""
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"{what} is needed in CI")
    pytest.skip(f"{what} is not there")
