"""Where the management API is looked for."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPSConnection

import pytest
from kombu import Connection

from django_jobdedup.brokers.rabbitmq.management import Management


@pytest.mark.parametrize(
    ("url", "ssl", "options", "kind", "place"),
    [
        ("amqp://rabbit.example//", None, {}, HTTPConnection, ("rabbit.example", 15672)),
        ("amqp://rabbit.example:5671//", True, {}, HTTPSConnection, ("rabbit.example", 15671)),
        ("amqp://rabbit.example//", {"ca_certs": None}, {}, HTTPSConnection, ("rabbit.example", 15671)),
        (
            "amqp://rabbit.example//",
            None,
            {"manager_hostname": "watch.example", "manager_port": "8080"},
            HTTPConnection,
            ("watch.example", 8080),
        ),
    ],
)
def test_it_is_beside_the_broker_unless_the_options_say_otherwise(
    url: str, ssl: object, options: dict[str, object], kind: type, place: tuple[str, int]
) -> None:
    client = Management(Connection(url, ssl=ssl, transport_options=options))._client()

    assert type(client) is kind
    assert (client.host, client.port) == place
