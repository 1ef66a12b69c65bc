"""Whether a Redis forgets locks by itself: every key of a lock has an expiry, so any eviction takes it."""

from __future__ import annotations

from typing import Final

from django_jobdedup.stores.redis.client import RedisClient

#: The one policy that keeps every key.
NONE: Final = "noeviction"


def eviction_of(client: RedisClient) -> str:
    """Return the policy by which a server with a bound on its memory evicts keys; empty if it evicts none.

    ``INFO`` says it also where ``CONFIG`` is shut. Raises what redis-py raises.
    """
    memory = client.info("memory")
    policy = str(memory.get("maxmemory_policy", NONE))
    return policy if policy != NONE and int(memory.get("maxmemory", 0)) else ""
