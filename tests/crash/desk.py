"""The one thread that calls and asks a store: a connection to a database belongs to a thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import connections

T = TypeVar("T")


class Desk:
    """Does things one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def do(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """Do something and give its value."""
        return self._thread.submit(work, *args, **options).result()

    def close(self) -> None:
        """Close the connections and end."""
        self.do(connections.close_all)
        self._thread.shutdown()
