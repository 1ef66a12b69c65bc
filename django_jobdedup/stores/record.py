"""The record of one fingerprint: its address, its holders, the markers beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: P reserved, publish not confirmed; W the message exists; R running; K kept after its end.
State = Literal["P", "W", "R", "K"]


@dataclass(frozen=True, slots=True)
class Ref:
    """The address of a record: the shard of its lock name, and its fingerprint."""

    shard: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Holder:
    """One holder of a record. Instants are seconds since the epoch, 0 where they do not apply."""

    id: str
    state: State
    nonce: str = ""
    lease: float = 0.0
    until: float = 0.0
    due: float = 0.0
    first: float = 0.0
    since: float = 0.0
    ttl: float = 0.0
    over: tuple[str, ...] = ()
    args: bytes | None = None
    merged: int = 0
    starts: int = 0
    refused: int = 0
    fence: int = 0
    by: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """The trace of an ended id: the highest ended attempt, or final, or superseded by another id."""

    n: int = -1
    final: bool = False
    superseded_by: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What a store knows of one fingerprint, dead holders included; ``marker`` is that of the id asked for.

    ``now`` is the store's time of the answer; ``attention`` the record's place in a list of locks.
    """

    ref: Ref
    name: str
    holders: tuple[Holder, ...]
    marker: Marker | None = None
    now: float = 0.0
    attention: float = 0.0
