"""The memory stores of a test: those of one kit live as long as the kit.

A setting that changes in the middle of a test makes the app forget its stores and make them anew; the
backend here then gives the very store that was there before, with its locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from django_jobdedup.stores.clock import Clock
from django_jobdedup.stores.memory import MemoryStore

#: What stands in ``JOBDEDUP_STORES`` while a kit is there.
BACKEND: Final = f"{__name__}.store_of_the_test"
_numbers: Final = count(1)
_shelf: Final[dict[str, Stores]] = {}


class Stores:
    """One memory store an alias, all on one clock."""

    def __init__(self, clock: Clock) -> None:
        self.key = f"{os.getpid()}.{next(_numbers)}"
        self._clock = clock
        self._stores: dict[str, MemoryStore] = {}

    def __getitem__(self, alias: str) -> MemoryStore:
        if alias not in self._stores:
            self._stores[alias] = MemoryStore(alias, clock=self._clock)
        return self._stores[alias]

    def setting(self, aliases: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the ``JOBDEDUP_STORES`` that lead here."""
        return {alias: {"BACKEND": BACKEND, "LOCATION": self.key} for alias in aliases}

    @contextmanager
    def on_the_shelf(self) -> Iterator[None]:
        """Let the backend find these stores within the block."""
        _shelf[self.key] = self
        try:
            yield
        finally:
            del _shelf[self.key]


def store_of_the_test(alias: str, location: str, options: Mapping[str, Any]) -> MemoryStore:
    """Return the memory store of the kit that ``location`` names; the ``BACKEND`` of its setting."""
    try:
        return _shelf[location][alias]
    except KeyError:
        raise ImproperlyConfigured(
            f"JOBDEDUP_STORES[{alias!r}] belongs to a test that has ended, or to one of another process."
        ) from None
