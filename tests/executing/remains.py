"""What is left in the lock store of one namespace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import redis

from tests.rig.environment import Environment
from tests.rig.waiting import wait_for


@dataclass(frozen=True, slots=True)
class Remains:
    """Keys of the lock store by kind; ``index`` holds the members of all indexes."""

    locks: tuple[str, ...]
    index: tuple[str, ...]
    others: tuple[str, ...]
    eternal: tuple[str, ...]


class LockKeys:
    """Looks at the keys of the lock store in one world, and at no others."""

    def __init__(self, environment: Environment) -> None:
        self._client = redis.Redis.from_url(environment.redis_url, decode_responses=True)
        self._namespace = environment.namespace

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def keys(self) -> list[str]:
        """Give all keys of the lock store."""
        found = self._client.scan_iter(match=f"*{self._namespace}:*", count=1000)
        ours = (f"{{{self._namespace}:", f"{self._namespace}:1:worker:")
        return sorted(key for key in found if key.startswith(ours))

    def remains(self) -> Remains:
        """Look at everything once."""
        keys = self.keys()
        pipeline = self._client.pipeline()
        for key in keys:
            pipeline.ttl(key)
        eternal = [key for key, ttl in zip(keys, pipeline.execute(), strict=True) if ttl == -1]
        index = [
            member for key in keys if key.endswith(":index") for member in self._client.zrange(key, 0, -1)
        ]
        locks = [key for key in keys if ":lock:" in key]
        others = [key for key in keys if ":lock:" not in key and not key.endswith(":index")]
        return Remains(tuple(locks), tuple(index), tuple(others), tuple(eternal))

    def life(self, fingerprint: str) -> float:
        """Give the remaining life of a lock's key, seconds; -2 without one."""
        for key in self._client.scan_iter(match=f"*{self._namespace}:*:lock:{fingerprint}", count=1000):
            return float(self._client.pttl(key)) / 1000
        return -2.0

    def wait_until_empty(self, timeout: float = 5.0, but: Iterable[str] = ()) -> Remains:
        """Wait until no lock is left, *but* those named; raises ``AssertionError`` that names the others."""
        known = set(but)

        def others() -> list[str]:
            remains = self.remains()
            left = [key for key in remains.locks if key not in known]
            return left + [each for each in remains.index if not any(key.endswith(each) for key in known)]

        wait_for(lambda: not others(), timeout, every=0.1, what=lambda: f"no lock; there are {others()}")
        return self.remains()
