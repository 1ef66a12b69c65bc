"""Fixtures for every test: the Redis of this run, a world for each test, workers, beat, the journal."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis
from hypothesis import settings as hypothesis_settings

from testproject.celery import app as celery_app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis

from .rig.beat import Beat
from .rig.engines import (  # noqa: F401 - fixtures
    engine,
    engines,
    mariadb_engine,
    postgresql_engine,
    sqlite_engine,
)
from .rig.environment import Environment, new_namespace
from .rig.journal import Journal
from .rig.monitor import Monitor
from .rig.plugin import SERVER
from .rig.worker import Worker

if os.environ.get("CI"):
    # At home each run looks elsewhere; in CI the same commit gives the same answer.
    hypothesis_settings.register_profile("ci", derandomize=True)
    hypothesis_settings.load_profile("ci")

VERSIONS_OF = ("Django", "celery", "kombu", "redis", "django-redis")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which versions ran, so that a log alone tells what was tested."""
    server = config.stash[SERVER]
    with redis.Redis.from_url(server.url) as client:
        found = client.info("server")["redis_version"]
    kind = "given by REDIS_URL" if isinstance(server, GivenRedis) else "embedded"
    libraries = ", ".join(f"{name} {version(name)}" for name in VERSIONS_OF)
    return [f"versions: Python {platform.python_version()}, {libraries}", f"redis server: {found}, {kind}"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with long tests first: in a parallel run, the last minute is then nobody's alone."""
    longest: Counter[Path] = Counter()
    for item in items:
        for marker in item.iter_markers("timeout"):
            longest[item.path] = max(longest[item.path], *marker.args)
    items.sort(key=lambda item: -longest[item.path])


@pytest.fixture(scope="module", autouse=True)
def nothing_left_open() -> Iterator[None]:
    """Collect what a file has dropped: a socket or file left open is then an error of its last test.

    Else it would be one of whatever runs when the collector comes by.
    """
    yield
    gc.collect()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect what fixtures of a whole folder or run have dropped: the exit code depends on tests alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


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


@pytest.fixture
def environment_options(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """The options of this test's world: ``celery`` and ``settings``, from ``@pytest.mark.environment``."""
    marker = request.node.get_closest_marker("environment")
    return dict(marker.kwargs) if marker is not None else {}


@pytest.fixture
def celery_env(
    redis_server: GivenRedis | EmbeddedRedis, environment_options: dict[str, dict[str, Any]]
) -> Iterator[Environment]:
    """A world for one test: no key of broker, results, locks or journal is shared with another test.

    This process moves into it, workers are started in it, and its keys are deleted at the end.
    """
    environment = Environment(new_namespace(), redis_server.url, **environment_options)
    with environment.entered(celery_app):
        yield environment
    environment.clean()


@pytest.fixture
def journal(celery_env: Environment) -> Iterator[Journal]:
    """What ran in this test's world."""
    with contextlib.closing(Journal(celery_env.redis_url, celery_env.namespace)) as journal:
        yield journal


@pytest.fixture
def monitor(redis_server: GivenRedis | EmbeddedRedis) -> Iterator[Monitor]:
    """Counts the commands that the Redis of this run receives; starts when the test says so."""
    monitor = Monitor(redis_server.url)
    yield monitor
    monitor.stop()


class StartWorker(Protocol):
    """Start a worker; see ``tests/rig/worker.py`` for the options. Waits until it is ready."""

    def __call__(self, environment: Environment | None = None, **options: Any) -> Worker: ...


class StartBeat(Protocol):
    """Start beat over a schedule; see ``tests/rig/beat.py``. Waits until it is ready."""

    def __call__(
        self, schedule: dict[str, Any], environment: Environment | None = None, **options: Any
    ) -> Beat: ...


@pytest.fixture
def worker(celery_env: Environment, tmp_path: Path) -> Iterator[StartWorker]:
    """Start workers in this test's world, or in a variant of it; all end with the test."""
    with contextlib.ExitStack() as stack:

        def start(environment: Environment | None = None, **options: Any) -> Worker:
            started = stack.enter_context(Worker(environment or celery_env, tmp_path, **options))
            return started.wait_until_ready()

        yield start


@pytest.fixture
def beat(celery_env: Environment, tmp_path: Path) -> Iterator[StartBeat]:
    """Start beats in this test's world, or in a variant of it; all end with the test."""
    with contextlib.ExitStack() as stack:

        def start(schedule: dict[str, Any], environment: Environment | None = None, **options: Any) -> Beat:
            started = stack.enter_context(Beat(environment or celery_env, tmp_path, schedule, **options))
            return started.wait_until_ready()

        yield start


def need(condition: bool, what: str) -> None:
    """Skip at home, fail in CI, when a big server (RabbitMQ, PostgreSQL) is not there."""
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"{what} is needed in CI")
    pytest.skip(f"{what} is not there")
