"""The RabbitMQ of ``AMQP_URL``, and a queue of one test's own there."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from kombu import Connection, Queue

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672//")


def listens(url: str) -> bool:
    """Say whether something answers at the address of a URL."""
    place = urlsplit(url)
    try:
        with socket.create_connection((place.hostname or "127.0.0.1", place.port or 5672), timeout=2):
            return True
    except OSError:
        return False


def need_amqp() -> None:
    """Skip at home, fail in CI, where it is not there."""
    from tests.conftest import need

    need(listens(URL), f"a RabbitMQ at {URL.rpartition('@')[2]} (AMQP_URL)")


@pytest.fixture
def queue() -> Iterator[str]:
    """A queue of this test alone, deleted at the end."""
    need_amqp()
    name = f"jobdedup-test-{secrets.token_hex(6)}"
    yield name
    with Connection(URL) as connection:
        Queue(name)(connection.default_channel).delete()
        connection.default_channel.exchange_delete(name)
