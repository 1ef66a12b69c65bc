"""Redis behind Sentinel: kombu finds the master, and nothing here reads the URL."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from django_jobdedup.brokers.found import Sighting
from django_jobdedup.brokers.handler import broker_for
from django_jobdedup.brokers.message import Place
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis, find_binary, free_port
from tests.rig.environment import Environment
from tests.rig.waiting import wait_for

from .hands import Hands


def answers(port: int) -> bool:
    try:
        with redis.Redis(port=port, socket_timeout=1) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.fixture
def sentinel(lock_server: EmbeddedRedis, tmp_path: Path) -> Iterator[int]:
    """The port of a Sentinel that watches a server as ``jobs``."""
    port = free_port()
    config = tmp_path / "sentinel.conf"
    watched = f"sentinel monitor jobs 127.0.0.1 {lock_server.port} 1"
    config.write_text(f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n{watched}\n")
    process = subprocess.Popen([find_binary(), config, "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(port), what="the Sentinel")
        yield port
    finally:
        process.kill()
        process.wait()


def test_messages_are_read_from_the_master(
    celery_env: Environment, lock_server: EmbeddedRedis, sentinel: int
) -> None:
    options = {
        "broker_url": f"sentinel://127.0.0.1:{sentinel};sentinel://127.0.0.1:{free_port()}",
        "broker_transport_options": {"master_name": "jobs"},
    }
    with celery_env.having(celery=options).entered(app), Hands(app) as hands:
        id = hands.send(queue="reports", priority=6)
        # Several addresses of one server: unlike several servers, that is no doubt.
        found = broker_for(app).find([id, "gone"], ["reports"])
        assert found.seen == {id: (Sighting(Place.PRIORITY_LIST, "reports", 6),)}
        assert found.missing == {"gone"}
    with redis.Redis(port=lock_server.port) as client:
        assert client.keys("*reports*")
