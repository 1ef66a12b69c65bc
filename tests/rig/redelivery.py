"""Bring a redelivery about in seconds, whatever kombu is installed."""

from __future__ import annotations

from celery import Celery

FAST_REDELIVERY = {
    "visibility_timeout": 3,
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    "unacked_mutex_expire": 5,  # else one that is killed while it looks keeps the others from it for minutes
}
"""Broker transport options under which a worker looks every second for what lapsed; from kombu 5.7 on."""


def restore_lapsed(app: Celery) -> None:
    """Put back what was delivered longer than the visibility timeout ago, as a worker's own sweep does.

    Before kombu 5.7 that sweep comes only every hundred seconds; a test that waits for a redelivery calls
    this while it waits.
    """
    with app.connection_for_write() as connection:
        connection.default_channel.qos.restore_visible(num=1000, interval=1)
