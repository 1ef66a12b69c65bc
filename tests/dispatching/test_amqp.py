"""The same over AMQP: the header, a refused call, a retry, a put-off. Smoke only; Redis has the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kombu import Connection, Queue

from django_jobdedup.dispatching.confirm import confirmer
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis
from tests.conftest import StartWorker
from tests.jobs import tasks
from tests.rig.amqp import URL
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal

from .looking import state

pytestmark = pytest.mark.worker


@pytest.fixture
def celery_env(redis_server: GivenRedis | EmbeddedRedis, queue: str) -> Iterator[Environment]:
    """A world whose broker is RabbitMQ; results, locks and journal stay in Redis."""
    environment = Environment(
        new_namespace(),
        redis_server.url,
        celery={
            "broker_url": URL,
            "broker_transport_options": {"confirm_publish": True},
            "task_default_queue": queue,
            "worker_enable_remote_control": False,
            "worker_send_task_events": False,
        },
    )
    with environment.entered(app):
        yield environment
        confirmer.flush()
    environment.clean()


def test_a_unique_job_over_amqp(
    celery_env: Environment, queue: str, worker: StartWorker, journal: Journal, key: str
) -> None:
    first, second = (tasks.until_executed.delay(key, 0.3) for _ in range(2))
    assert [first.outcome, second.outcome] == ["accepted", "suppressed"]
    assert second.id == first.id
    with Connection(URL) as connection:
        message = Queue(queue)(connection.default_channel).get()
        assert message.headers["jobdedup"]["id"] == first.id
        assert message.headers["jobdedup"]["k"][0][0] == first.fingerprint
        assert "unique" not in message.properties
        message.requeue()
    assert state(first, tasks.until_executed.name) == [(first.id, "W")]
    worker(queues=[queue])
    assert second.get(timeout=15) == key
    assert [run.id for run in journal.runs(key)] == [first.id]

    retried = tasks.retrying.delay(key, 1, 0.3)
    outsider = tasks.retrying.delay(key, 1, 0.3)
    assert outsider.id == retried.id
    assert retried.get(timeout=15) == 1

    results = [tasks.while_executing.delay(f"{key}-mutex", 0.2) for _ in range(2)]
    assert [result.get(timeout=20) for result in results] == [f"{key}-mutex"] * 2
    assert journal.overlaps(f"{key}-mutex") == []
