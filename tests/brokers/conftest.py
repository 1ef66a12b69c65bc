"""A world of its own for each test, its broker, and what kombu itself does with messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_jobdedup.brokers.base import Broker
from django_jobdedup.brokers.handler import broker_for
from testproject.celery import app
from tests.rig.environment import Environment

from .hands import Hands


@pytest.fixture(autouse=True)
def own_queues() -> Iterator[None]:
    """Forget the queues that Celery made up for a test."""
    before = set(app.amqp.queues)
    yield
    for name in set(app.amqp.queues) - before:
        del app.amqp.queues[name]


@pytest.fixture
def broker(celery_env: Environment) -> Broker:
    """The broker of this test's world."""
    return broker_for(app)


@pytest.fixture
def hands(celery_env: Environment) -> Iterator[Hands]:
    """A kombu channel that takes messages and puts them back, as a worker does."""
    with Hands(app) as hands:
        yield hands
