"""No test here needs a server: broker, results and locks are in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import Celery
from django.test import override_settings
from kombu.transport.memory import Channel

from django_jobdedup.testkit.plugin import jobdedup  # noqa: F401 - see test_plugin.py for the entry point
from testproject.celery import app
from tests.rig.environment import forget_connections

from . import jobs

OPTIONS = {
    "broker_url": "memory://",
    "broker_transport_options": {"polling_interval": 0.02},
    "result_backend": "cache+memory://",
    "task_store_eager_result": False,
}


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[Celery]:
    """Move the Celery app of this process into memory, with empty queues."""
    before = {name: app.conf.get(name) for name in OPTIONS}
    # Before 5.6 the prefixed Django setting wins over conf.update(), later it is the other way round.
    with override_settings(**{f"CELERY_{name.upper()}": value for name, value in OPTIONS.items()}):
        app.conf.update(OPTIONS)
        forget_connections(app)
        Channel.queues.clear()
        try:
            yield app
        finally:
            forget_connections(app)
            app.conf.update(before)


@pytest.fixture(autouse=True)
def fresh_jobs() -> None:
    """Forget what has run."""
    jobs.ran.clear()
    jobs.gate.clear()


@pytest.fixture
def eager(in_memory: Celery) -> Iterator[None]:
    """Run every call in its caller."""
    in_memory.conf.task_always_eager = True
    yield
    in_memory.conf.task_always_eager = False
