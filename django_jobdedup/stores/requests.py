"""What the verbs of a store are asked: small frozen values; durations in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Ref

#: What a refused dispatch does with a waiting holder.
OnWaiting = Literal["keep", "merge", "over", "soonest"]


@dataclass(frozen=True, slots=True)
class Merge:
    """How a merged call moves the due time of the waiting holder; seconds."""

    wait: float = 0.0
    max_wait: float | None = None


@dataclass(frozen=True, slots=True)
class Acquire:
    """Ask for a waiting seat.

    ``counts`` are the states of other holders that refuse. ``due_in`` is the time until the job may
    start, ``pending`` the time within which the publish must be confirmed. ``again``: the message
    belongs to a job that was accepted before, so it is never refused. ``received``: the message
    exists already (it came without our header), so the holder waits at once. ``name`` is the lock
    name, for people and counters; ``counted`` adds the answer to the counters. ``call`` is the whole stored
    call: a durable store keeps it, and its waiting seat is then an intent; other stores leave it alone.
    """

    ref: Ref
    id: str
    counts: str = "PWR"
    limit: int = 1
    on_waiting: OnWaiting = "keep"
    due_in: float = 0.0
    ttl: float = 5400.0
    pending: float = 15.0
    args: bytes | None = None
    merge: Merge | None = None
    again: bool = False
    received: bool = False
    by: str = ""
    name: str = ""
    counted: bool = True
    call: bytes | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask for a running seat for one delivery, named by its ``nonce``.

    ``late`` is the time for which a message of this id may still exist after a crash (late ack);
    0 with early ack. ``gate`` is how many other live runs are tolerated minus one: a start is
    refused when as many others run; 0 tolerates any. ``max_starts`` 0 means no bound.
    """

    ref: Ref
    id: str
    n: int
    nonce: str
    lease: float = 30.0
    ttl: float = 5400.0
    late: float = 0.0
    gate: int = 1
    max_starts: int = 0
    by: str = ""
    name: str = ""
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Sleep:
    """Say that attempt ``n`` of a job, put off because the gate is shut, sleeps until its message comes.

    ``gate`` as in ``Claim``; 0 notes it whether a run is in the way or not. ``call`` is the whole stored
    call, to be published if a release wakes the job; None where a durable store keeps it in the job's row.
    ``life`` is how long the job may be woken, seconds: its message sleeps no longer. ``woken``: said by the
    message that has woken it, and met a shut gate again: the job goes back to its place.
    """

    ref: Ref
    id: str
    n: int = 0
    gate: int = 1
    call: bytes | None = None
    life: float = 1200.0
    woken: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """What a running delivery shows to renew or finish: its record, id and nonce."""

    ref: Ref
    id: str
    nonce: str
    lease: float = 30.0


@dataclass(frozen=True, slots=True)
class Finish:
    """Give a running seat back. ``marker_ttl``: how long the ended id is remembered, seconds.

    ``reason`` is the ending in one word (``Ending.reason``); a durable store shows it to people. ``unsent``
    comes with a hand-over: the stored call of the next message, which is due at once.
    """

    token: Token
    n: int
    how: How = How.RELEASE
    marker_ttl: float = 60.0
    name: str = ""
    counted: bool = True
    reason: str = ""
    unsent: bytes | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Give a waiting seat back.

    ``waiting`` False: the publish failed, surely or perhaps; only an own ``P`` is given back.
    ``waiting`` True: the message was revoked, has expired or is skipped at its start; an own ``P``
    or ``W`` is given back, and the id is closed with a final marker that lives ``marker_ttl``
    seconds, unless its marker says that attempt ``n`` has ended before. ``reason`` as in ``Finish``.
    ``by`` is the token of the holder for which a start is skipped: the id is superseded by it then, so that
    a later copy says so instead of ending without a word.
    """

    ref: Ref
    id: str
    n: int = 0
    waiting: bool = False
    marker_ttl: float = 60.0
    reason: str = ""
    by: str = ""
