"""The broker of a Celery app, chosen by its transport."""

from __future__ import annotations

from typing import Any, Final

from django_jobdedup.brokers.base import Broker
from django_jobdedup.brokers.rabbitmq.broker import RabbitBroker
from django_jobdedup.brokers.redis.broker import RedisBroker
from django_jobdedup.brokers.unreadable import Unreadable

#: kombu's driver type to who reads it; Sentinel and TLS are of the same type.
BROKERS: Final[dict[str, type[RedisBroker | RabbitBroker]]] = {"redis": RedisBroker, "amqp": RabbitBroker}


def broker_for(app: Any) -> Broker:
    """Return the broker of an app, without connecting; raises Unreadable for other transports."""
    connection = app.connection_for_read()
    driver = str(connection.get_transport_cls().driver_type)
    if driver not in BROKERS:
        raise Unreadable(
            f"Messages of the transport {driver!r} ({connection.as_uri()}) cannot be looked at: "
            "django_jobdedup reads Redis and RabbitMQ. A lock whose message got lost there ends by its TTL."
        )
    return BROKERS[driver](app)
