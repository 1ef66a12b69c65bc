"""The message header: what travels with a job, written and read.

The sender computes fingerprint and knobs once; they travel in one flat message header. Workers use the
header and never compute again. Children of a task do not inherit it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final, Literal

#: Name of our message header; flat, beside Celery's own.
HEADER: Final = "jobdedup"
#: Name under which the worker's main process adds the nonce of one delivery.
NONCE: Final = "jobdedup_nonce"
#: Name under which it adds the serializer of a message that was not sent with the task's own.
SERIALIZER: Final = "jobdedup_serializer"
#: Shard numbers have two digits, whatever ``JOBDEDUP_SHARDS`` says by now.
MOST_SHARDS: Final = 100
#: Numbers in a header stay below.
MOST: Final = 2**40
#: Between the id and the life in a token; no task id with a lock holds a control character.
LIFE: Final = "\x1e"
#: No text of ours holds another control character, or a surrogate, which no store can keep.
_FOREIGN: Final = re.compile("[\x00-\x1d\x1f\ud800-\udfff]")
_FINGERPRINT: Final = re.compile("[0-9a-f]{64}")
#: No policy has a shorter lease, seconds: the shortest one sets the pace of a worker's renewals.
SHORTEST_LEASE: Final = 1.0
#: Version of the header and of the fingerprint in it.
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Knobs:
    """All that a worker needs to know of a policy; durations in seconds.

    ``lock`` is the lock type's name, ``name`` the lock name, ``counts``, ``limit`` and ``gate`` the
    store's knobs, ``keeps`` whether the lock outlives a good end, ``at_dispatch`` whether a waiting
    seat exists at all, ``execution`` the strategy for a conflict at start in its JSON form, ``on_waiting``
    what a refused dispatch does with a waiting holder, ``observe`` whether nobody is refused by it.
    """

    lock: str = "until_executed"
    name: str = ""
    counts: str = "PWR"
    limit: int = 1
    gate: int = 1
    ttl: float = 5400.0
    lease: float = 30.0
    keeps: bool = False
    keep_on_failure: bool = False
    at_dispatch: bool = True
    max_starts: int = 0
    execution: Any = "reschedule"
    on_store_error: str = "proceed"
    store: str = "default"
    on_waiting: Literal["keep", "merge", "over", "soonest"] = "keep"
    observe: bool = False


#: Field of ``Knobs`` to its key on the wire. Part of format 1: never reuse a letter.
WIRE: Final = {
    "lock": "l",
    "name": "b",
    "counts": "c",
    "limit": "m",
    "gate": "g",
    "ttl": "t",
    "lease": "e",
    "keeps": "k",
    "keep_on_failure": "f",
    "at_dispatch": "d",
    "max_starts": "q",
    "execution": "x",
    "on_store_error": "r",
    "store": "a",
    "on_waiting": "w",
    "observe": "o",
}
_DEFAULTS: Final = {f.name: f.default for f in fields(Knobs)}


def encode_knobs(knobs: Knobs) -> dict[str, Any]:
    """Return the wire form: only what differs from the defaults of format 1."""
    try:
        return dict(_wire(knobs))
    except TypeError:  # a strategy with options has no hash
        return _wire.__wrapped__(knobs)


@lru_cache(1000)
def _wire(knobs: Knobs) -> dict[str, Any]:
    return {key: value for name, key in WIRE.items() if (value := getattr(knobs, name)) != _DEFAULTS[name]}


def decode_knobs(wire: object) -> Knobs:
    """Read the wire form; keys that this version does not know are passed over.

    Raises TypeError for a value of another kind than the knob's.
    """
    if not isinstance(wire, Mapping):
        raise TypeError(f"knobs are {wire!r}")
    return Knobs(**{name: _checked(name, wire[key]) for name, key in WIRE.items() if key in wire})


def _checked(name: str, value: Any) -> Any:
    """Return a value of the knob's own kind; numbers are finite and not below zero."""
    default = _DEFAULTS[name]
    if name == "execution":
        return value
    if isinstance(default, str):
        return _text(value)
    if isinstance(default, bool) and type(value) is bool:
        return value
    if isinstance(default, int) and type(value) is int:
        return _whole(value)
    least = SHORTEST_LEASE if name == "lease" else 0
    if isinstance(default, float) and type(value) in (int, float) and least <= value < MOST:
        return float(value)
    raise TypeError(f"knob {name} is {value!r}")


def _whole(value: Any, below: int = MOST) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"number is {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or _FOREIGN.search(value):
        raise TypeError(f"text is {value!r}")
    return value


def _fingerprint(value: Any) -> str:
    if not isinstance(value, str) or not _FINGERPRINT.fullmatch(value):
        raise TypeError(f"fingerprint is {value!r}")
    return value


def _instant(value: Any) -> float:
    if not 0 <= value < MOST:
        raise ValueError(f"instant is {value!r}")
    return float(value)


def is_newer(wire: object) -> bool:
    """Say whether this is a header of a later version, which this one must neither read nor replace.

    Of a later format, or with several locks: a job that held only the first would free only that one.
    """
    if not isinstance(wire, Mapping):
        return False
    version, locks = wire.get("v"), wire.get("k")
    return type(version) is int and (version > FORMAT or (isinstance(locks, list | tuple) and len(locks) > 1))


def task_id_of(token: str) -> str:
    """Return the Celery task id in a token of the store."""
    return token.partition(LIFE)[0]


def life_of(token: str) -> str:
    """Return the life in a token of the store; empty where the id has only one."""
    return token.partition(LIFE)[2]


@dataclass(frozen=True, slots=True)
class Header:
    """What travels with a message.

    ``id`` is the task id, ``n`` counts hand-overs, ``at`` is the store's time of the acceptance, the
    sender's where the lock takes no seat at dispatch (epoch seconds, 0 unknown), ``put_offs`` counts
    how often this attempt was put off. No ``locks``: this call bypasses its policy. ``refused_by``:
    found to be a duplicate on reception. ``copies``: another message of this id is out and due in so long,
    seconds. ``life``: a caller who gives a task id may give it again (a chain
    that is applied twice does); it tells the two jobs apart. ``follow``: the token of the job whose outcome
    this one takes; ``mark``: of the one for which it does nothing. ``gone_at``: since when there is no
    outcome to take although that job has ended (the worker's clock, epoch seconds, 0 not so). ``woken``:
    a release has published this message, and the one that it was put off with still sleeps. ``asleep_until``:
    when the pause is over that a strategy has chosen, where no message may sleep for so long (that worker's
    clock, epoch seconds, 0 not so).
    """

    id: str
    shard: int = 0
    locks: tuple[tuple[str, Knobs], ...] = ()
    n: int = 0
    at: float = 0.0
    put_offs: int = 0
    refused_by: str = ""
    life: str = ""
    copies: float = 0.0
    follow: str = ""
    mark: str = ""
    gone_at: float = 0.0
    woken: bool = False
    asleep_until: float = 0.0

    @property
    def token(self) -> str:
        """Return what stands for this job in the store: its id, and its life where the id has several."""
        return f"{self.id}{LIFE}{self.life}" if self.life else self.id

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the first lock, or an empty text."""
        return self.locks[0][0] if self.locks else ""

    @property
    def knobs(self) -> Knobs:
        """Return the knobs of the first lock."""
        return self.locks[0][1]

    def accepted(self, at: float) -> Header:
        """Return the header with the store's time of the acceptance, unless it has one."""
        if self.at:
            return self
        return Header(
            self.id, self.shard, self.locks, self.n, at, self.put_offs, self.refused_by, self.life,
            self.copies, asleep_until=self.asleep_until,
        )  # fmt: skip

    def on_its_own(self) -> Header:
        """Return the header of a message that is the job's only one, and neither follows nor stands aside."""
        return replace(self, put_offs=0, follow="", mark="", gone_at=0.0, woken=False, asleep_until=0.0)

    def encode(self) -> dict[str, Any]:
        """Return the JSON form that every message serializer carries."""
        wire: dict[str, Any] = {"v": FORMAT, "id": self.id}
        if self.locks:
            wire["s"] = self.shard
            wire["k"] = [[fingerprint, encode_knobs(knobs)] for fingerprint, knobs in self.locks]
        rest = {
            "n": self.n, "at": self.at, "p": self.put_offs, "by": self.refused_by, "u": self.life,
            "c": self.copies, "w": int(self.woken), "z": self.asleep_until,
        }  # fmt: skip
        if self.follow or self.mark:
            rest |= {"follow": self.follow, "mark": self.mark, "gone": self.gone_at}
        for key, value in rest.items():
            if value:
                wire[key] = value
        return wire

    @classmethod
    def decode(cls, wire: object) -> Header | None:
        """Read a header; None for a message that has none or one that is not ours to read."""
        if not isinstance(wire, Mapping) or wire.get("v") != FORMAT or not isinstance(wire.get("id"), str):
            return None
        if is_newer(wire):
            return None
        try:
            return cls(
                id=_text(wire["id"]),
                shard=_whole(wire.get("s", 0), MOST_SHARDS),
                locks=tuple((_fingerprint(fp), decode_knobs(knobs)) for fp, knobs in wire.get("k", ())),
                n=_whole(wire.get("n", 0)),
                at=_instant(wire.get("at", 0.0)),
                put_offs=_whole(wire.get("p", 0)),
                refused_by=_text(wire.get("by", "")),
                life=_text(wire.get("u", "")),
                copies=_instant(wire.get("c", 0.0)),
                follow=_text(wire.get("follow", "")),
                mark=_text(wire.get("mark", "")),
                gone_at=_instant(wire.get("gone", 0.0)),
                woken=bool(_whole(wire.get("w", 0), 2)),
                asleep_until=_instant(wire.get("z", 0.0)),
            )
        except (OverflowError, TypeError, ValueError):
            return None
