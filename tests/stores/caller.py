"""A process that calls in every round; in a module of its own, so that a fork server can load it once."""

from __future__ import annotations

import os
from typing import Any

import django
from django.test import override_settings

from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.requests import Acquire


def key(number: int) -> Ref:
    """Return the record of a round."""
    return Ref(7, f"{number:064}")


def call(caller: int, url: str, rounds: int, barrier: Any, results: Any) -> None:
    """Call once a round, and send all answers at the end."""
    django.setup()
    locks = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}
    with override_settings(CACHES={"locks": locks}, JOBDEDUP_NAMESPACE="jd"):
        store = RedisStore("default", "locks")
        told = []
        for number in range(rounds):
            id = f"{caller}-{os.getpid()}-{number}"
            barrier.wait(60)
            told.append((number, id, store.acquire(Acquire(key(number), id))))
        results.put(told)
        store.close()
