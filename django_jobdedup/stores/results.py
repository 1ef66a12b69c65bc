"""What the verbs of a store answer: small frozen values, never exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django_jobdedup.stores.record import Holder, Ref, State


@dataclass(frozen=True, slots=True)
class Acquired:
    """The seat is taken, or was this id's before; ``at`` is the store's time."""

    at: float


@dataclass(frozen=True, slots=True)
class Held:
    """Refused: ``id`` is the holder that was counted first."""

    id: str
    state: State
    since: float
    until: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    """Joined the waiting holder ``id``; ``publish`` asks for a copy of its message under attempt ``n``.

    Only then: ``ahead`` is the time until its message that is out already is due, ``due_in`` until the copy
    is, both in seconds, and ``call`` what is stored of it: its own call with the newest arguments.
    """

    id: str
    n: int
    publish: bool
    ahead: float = 0.0
    due_in: float = 0.0
    call: bytes = b""


@dataclass(frozen=True, slots=True)
class Outside:
    """Publish without a seat: the id has ended for good, or its seat is somebody else's by now."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The own holder waits."""


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no such holder of one's own; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The seat is free; ``refused`` calls had been refused because of it."""

    refused: int


@dataclass(frozen=True, slots=True)
class Owed:
    """Others had merged into this holder: it stays, overdue, for somebody to publish."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The body may run. ``args`` are newer arguments if any, ``at`` the store's time of the claim."""

    fence: int
    at: float
    args: bytes | None = None
    starts: int = 1


@dataclass(frozen=True, slots=True)
class Superseded:
    """The job ``by`` has taken this one's place."""

    by: str


@dataclass(frozen=True, slots=True)
class Done:
    """Another delivery of this id speaks for it."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Not now: ``own`` another delivery of this id runs, else the gate is closed by ``by``."""

    own: bool
    retry_in: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class Asleep:
    """The job sleeps; in the line for a release if there was a place and its call is kept."""


@dataclass(frozen=True, slots=True)
class Open:
    """The gate is not shut any more: claim again. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Early:
    """The due time lies ``retry_in`` seconds ahead."""

    retry_in: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Started too often; the holder is removed and the id closed."""

    starts: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease was moved."""


@dataclass(frozen=True, slots=True)
class Lost:
    """This delivery holds nothing (any more)."""


@dataclass(frozen=True, slots=True)
class Released:
    """The seat is free.

    ``waiter`` is the oldest job that could start now, if its call is stored (beside its seat, or because it
    sleeps): to be published at once, for its message sleeps.
    """

    waiter: Overdue | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """The seat stays taken until its TTL; ``waiter`` as in ``Released``."""

    waiter: Overdue | None = None


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The seat waits for the next message of the same id."""


@dataclass(frozen=True, slots=True)
class NotMine:
    """The seat is not this delivery's; holders were left alone."""


#: What a dead holder was: ``lost`` running, ``lapsed`` waiting or kept, ``abandoned`` pending.
Lapsed = Literal["lost", "lapsed", "abandoned"]


@dataclass(frozen=True, slots=True)
class Lapse:
    """A dead holder that was swept."""

    what: Lapsed
    ref: Ref
    id: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """A job with a stored call that is to be published again, as attempt ``n``.

    Its time has passed, or its message sleeps although it could start.
    """

    ref: Ref
    id: str
    n: int
    args: bytes
    name: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """A holder that only its message keeps, without news for five minutes: has the message vanished?

    It waits, or a late-acked run of it has vanished and the redelivery is to come.
    """

    ref: Ref
    name: str
    holder: Holder


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one pass over the part of a shard found that needs attention.

    ``waiters`` are the oldest sleepers behind lost runs, one a run; as in ``Released``.
    """

    lapses: tuple[Lapse, ...]
    overdue: tuple[Overdue, ...]
    doubtful: tuple[Doubt, ...] = ()
    waiters: tuple[Overdue, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something abnormal that a verb has met; ``key`` is its place in the shard's stream, ``at`` store time.

    ``what`` is ``lost``, ``lapsed``, ``abandoned`` (swept by any verb, the reaper's included; with ``lost``,
    ``other`` is the last attempt of the id that had ended before, empty if none had), ``lock_lost`` (a finish
    that held nothing; ``other`` is its nonce), ``superseded`` (``other`` is the newcomer), ``withdrawn``
    (``other`` calls were refused by it or merged into it), ``exhausted`` or ``removed``.
    """

    key: str
    what: str
    at: float
    ref: Ref
    id: str
    name: str
    by: str
    other: str = ""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The store did not answer in time; ``error`` says why, in words."""

    error: str


AcquireResult = Acquired | Held | Merged | Outside | Unavailable
ClaimResult = Claimed | Superseded | Done | Busy | Early | Exhausted | Unavailable
SleepResult = Asleep | Open | Unavailable
FinishResult = Released | Kept | HandedOver | NotMine | Unavailable
