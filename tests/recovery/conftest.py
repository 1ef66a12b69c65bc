"""A memory store with its clock in our hand, in the place where the app looks for its stores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from django_jobdedup.outcomes import How
from django_jobdedup.recovery.lost_runs import readers
from django_jobdedup.recovery.periodic import NAME
from django_jobdedup.stores.clock import Clock
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token
from tests.rig.environment import Environment

REF = Ref(3, "f" * 64)


class Locks:
    """Short words for what senders and workers ask of a store."""

    def __init__(self, store: Any, name: str = "shop.recompute") -> None:
        self.store = store
        self.name = name

    def wait(self, id: str, ref: Ref = REF, **knobs: Any) -> None:
        """Acquire and confirm."""
        self.store.acquire(Acquire(ref, id, **{"name": self.name, "by": "web@1", **knobs}))
        self.store.confirm([(ref, id)])

    def run(self, id: str, ref: Ref = REF, lease: float = 10.0, n: int = 0, **knobs: Any) -> None:
        """Claim."""
        self.store.claim(Claim(ref, id, n, "nonce", lease=lease, name=self.name, by="worker@1", **knobs))

    def end(self, id: str, ref: Ref = REF, how: How = How.RELEASE) -> None:
        """Finish."""
        self.store.finish(Finish(Token(ref, id, "nonce"), 0, how, name=self.name))


@pytest.fixture
def memory(celery_env: Environment, settings: Any) -> Iterator[MemoryStore]:
    """The one store of this process; its clock stands still."""
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}
    store = stores["default"]
    assert isinstance(store, MemoryStore)
    store.clock = Clock(float(round(time.time())))
    readers.reset()
    yield store
    readers.reset()


@pytest.fixture
def locks(memory: MemoryStore) -> Locks:
    """Senders and workers of the memory store."""
    return Locks(memory)


@pytest.fixture
def ignored(memory: MemoryStore) -> Locks:
    """The same for a task whose results nobody keeps."""
    return Locks(memory, NAME)
