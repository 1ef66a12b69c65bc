"""Closing the connections over which this process waits for results.

Celery makes a result backend for each thread and closes none. A backend lies in reference cycles, so the
collector decides when it goes, and may come to a socket before the connection that would close it: then
Python warns of an unclosed socket, in whatever runs at that moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from celery import Celery
from celery.backends.redis import RedisBackend


@contextlib.contextmanager
def closing_backends(app: Celery) -> Iterator[None]:
    """Close at the end every backend that *app* makes within the block, whichever thread asks for it."""
    make, made = app._get_backend, []

    def remember() -> Any:
        backend = make()
        made.append(backend)
        return backend

    app._get_backend = remember
    try:
        yield
    finally:
        app._get_backend = make
        for backend in made:
            close(backend)


def close(backend: Any) -> None:
    """Close what a backend has open; Celery has no public call for it."""
    if not isinstance(backend, RedisBackend):
        return
    backend.result_consumer.stop()
    backend.result_consumer._pubsub = None  # a result that is collected later would open it again
    backend.client.connection_pool.disconnect()
