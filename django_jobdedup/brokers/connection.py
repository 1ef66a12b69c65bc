"""A connection to the broker, opened for one reading; what fails on it makes the broker unreadable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kombu.exceptions import OperationalError

from django_jobdedup.brokers.unreadable import Unreadable


@contextmanager
def connected(app: Any, errors: type[Exception], options: Mapping[str, Any]) -> Iterator[Any]:
    """Give a kombu connection of the app, made as its workers' are; ``options`` give way to the project's.

    Raises Unreadable for *errors*, a family of its client, and where no server answers.
    """
    configured = app.conf.broker_transport_options or {}
    connection = app.connection_for_read(transport_options={**options, **configured})
    try:
        # Each address once and without a pause; Sentinels are all asked in one try.
        more = 0 if connection.transport_cls == "sentinel" else max(0, len(connection.alt) - 1)
        connection.ensure_connection(max_retries=more, interval_start=0, interval_step=0, interval_max=0)
        yield connection
    except (OperationalError, OSError, errors) as error:
        raise Unreadable(f"The broker {connection.as_uri()} cannot be read: {error!s:.300}") from error
    finally:
        connection.release()
