"""Names of the keys in Redis: fixed, with the record format in them.

::

    {jd:07}:1:lock:<fingerprint>   one record                     {jd:07}:1:index      when to look at which
    {jd:07}:1:mark:<task id>       trace of an ended id           {jd:07}:1:fence      last fence
    {jd:07}:1:asleep:<fingerprint> the line of a lock             {jd:07}:1:counters   {jd:07}:1:events
    {jd:07}:1:calls:<fingerprint>  what those in it would run     jd:1:worker:<queue>  presence of a worker

The braces are the hash tag: whatever one script touches lies in one slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Version of the record; part of every key, so that two formats never meet in one.
FORMAT: Final = 1
#: Shard numbers have two digits.
MOST_SHARDS: Final = 100


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys of one shard; the last four are beginnings."""

    index: str
    events: str
    counters: str
    fence: str
    lock: str
    mark: str
    asleep: str
    calls: str


@dataclass(frozen=True, slots=True)
class Keys:
    """All key names of one namespace."""

    shards: tuple[ShardKeys, ...]
    worker: str


def keys_of(namespace: str) -> Keys:
    """Return the key names of a namespace; a header may name a shard of older settings, so all shards."""
    shards = tuple(_shard(namespace, number) for number in range(MOST_SHARDS))
    return Keys(shards, f"{namespace}:{FORMAT}:worker:")


def _shard(namespace: str, number: int) -> ShardKeys:
    start = f"{{{namespace}:{number:02}}}:{FORMAT}:"
    names = ("index", "events", "counters", "fence", "lock:", "mark:", "asleep:", "calls:")
    return ShardKeys(*(start + name for name in names))
