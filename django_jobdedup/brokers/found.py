"""What a reading gives: where ids were seen, and how many messages there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django_jobdedup.brokers.message import Place


@dataclass(frozen=True, slots=True)
class Sighting:
    """One place where an id was seen; ``priority`` is that of the list, not of the message."""

    place: Place
    queue: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """Where ids were seen.

    ``seen`` has each id that was, with its places in the order of the reading; ``missing`` all others.
    ``read`` counts the entries that were looked at, ``foreign`` those among them that no worker can read and
    that name nothing either.
    """

    seen: Mapping[str, tuple[Sighting, ...]]
    missing: frozenset[str] = frozenset()
    read: int = 0
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages a queue has.

    ``ready`` wait for a worker. ``unacked`` are in workers' hands and ``consumers`` listen; both are None
    where the broker does not say it for one queue.
    """

    ready: int
    unacked: int | None = None
    consumers: int | None = None
