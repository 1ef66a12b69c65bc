"""A world and a worker for a whole module: starting one costs seconds, so its tests share it by key."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator

import pytest

from django_jobdedup import signals
from django_jobdedup.dispatching import presence, transactions
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.middleware import mistake
from testproject.celery import app as celery_app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import jobs  # noqa: F401 - registers the tasks


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, redis_server: GivenRedis | EmbeddedRedis) -> Iterator[Environment]:
    """The world of this module; its options stand in the module as ``WORLD``."""
    options = getattr(request.module, "WORLD", {})
    environment = Environment(new_namespace(), redis_server.url, **options)
    environment = environment.having(celery={"imports": ["tests.dispatching.jobs"]})
    with environment.entered(celery_app):
        yield environment
        confirmer.flush()
    environment.clean()


@pytest.fixture(scope="module")
def node(
    request: pytest.FixtureRequest, world: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """The worker of this module; its options stand in the module as ``NODE``."""
    options = getattr(request.module, "NODE", {})
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


@pytest.fixture(autouse=True)
def fresh_memory() -> Iterator[None]:
    """Forget which queues are attended and which warnings were given, and confirm what was dispatched."""
    presence.forget()
    transactions._warned.clear()
    mistake.forget()
    yield
    confirmer.flush()
    presence.forget()


@pytest.fixture
def heard() -> Iterator[dict[str, list[dict[str, object]]]]:
    """What the signals of this process say, by the signal's name."""
    said: dict[str, list[dict[str, object]]] = {name: [] for name in signals.SIGNALS}
    receivers = []
    for name, signal in signals.SIGNALS.items():

        def receive(
            sender: object, *, _said: list[dict[str, object]] = said[name], **payload: object
        ) -> None:
            _said.append({"sender": sender, **payload})

        signal.connect(receive)
        receivers.append((signal, receive))
    yield said
    for signal, receive in receivers:
        signal.disconnect(receive)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What the app logs in this process."""
    caplog.set_level(logging.INFO, logger="django_jobdedup")
    return caplog
