"""A call and an execution, frozen, and the message header that joins them.

The sender computes fingerprint and knobs once; they travel in one flat message header. Workers use
the header and never compute again. Children of a task do not inherit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django_jobdedup.outcomes import How

if TYPE_CHECKING:
    from django_jobdedup.policies.resolve import Policy

#: Name of our message header; flat, beside Celery's own.
HEADER: Final = "jobdedup"
#: Name under which the worker's main process adds the nonce of one delivery.
NONCE: Final = "jobdedup_nonce"
#: Shard numbers have two digits, whatever ``JOBDEDUP_SHARDS`` says by now.
MOST_SHARDS: Final = 100
#: Version of the header and of the fingerprint in it.
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Knobs:
    """All that a worker needs to know of a policy; durations in seconds.

    ``lock`` is the lock type's name, ``name`` the lock name, ``counts``, ``limit`` and ``gate`` the
    store's knobs, ``keeps`` whether the lock outlives a good end, ``at_dispatch`` whether a waiting
    seat exists at all, ``execution`` the strategy for a conflict at start in its JSON form.
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
    default = _DEFAULTS[name]
    if name == "execution" or type(value) is type(default):
        return value
    if isinstance(default, float) and type(value) is int:
        return float(value)
    raise TypeError(f"knob {name} is {value!r}")


@dataclass(frozen=True, slots=True)
class Header:
    """What travels with a message.

    ``id`` is the token, ``n`` counts hand-overs, ``at`` is the store's time of the acceptance, the
    sender's where the lock takes no seat at dispatch (epoch seconds, 0 unknown), ``put_offs`` counts
    how often this attempt was put off. No ``locks``: this call bypasses its policy. ``refused_by``:
    found to be a duplicate on reception.
    """

    id: str
    shard: int = 0
    locks: tuple[tuple[str, Knobs], ...] = ()
    n: int = 0
    at: float = 0.0
    put_offs: int = 0
    refused_by: str = ""

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
        return Header(self.id, self.shard, self.locks, self.n, at, self.put_offs, self.refused_by)

    def encode(self) -> dict[str, Any]:
        """Return the JSON form that every message serializer carries."""
        wire: dict[str, Any] = {"v": FORMAT, "id": self.id}
        if self.locks:
            wire["s"] = self.shard
            wire["k"] = [[fingerprint, encode_knobs(knobs)] for fingerprint, knobs in self.locks]
        for key, value in (("n", self.n), ("at", self.at), ("p", self.put_offs), ("by", self.refused_by)):
            if value:
                wire[key] = value
        return wire

    @classmethod
    def decode(cls, wire: object) -> Header | None:
        """Read a header; None for a message that has none or one that is not ours to read."""
        if not isinstance(wire, Mapping) or wire.get("v") != FORMAT or not isinstance(wire.get("id"), str):
            return None
        try:
            return cls(
                id=wire["id"],
                shard=range(MOST_SHARDS).index(int(wire.get("s", 0))),
                locks=tuple((str(fp), decode_knobs(knobs)) for fp, knobs in wire.get("k", ())),
                n=int(wire.get("n", 0)),
                at=float(wire.get("at", 0.0)),
                put_offs=int(wire.get("p", 0)),
                refused_by=str(wire.get("by", "")),
            )
        except (OverflowError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Call:
    """One ``delay()``: task name, arguments and the whole of its options, headers included.

    ``due_in`` is the time until it may start (eta, countdown), seconds. ``promised``: somebody waits
    for this very id (chord, chain, link, or an id given by the caller). ``by_celery``: published by
    Celery itself, where an error would fail a parent that already ran. ``observed``: no worker with
    this app is known for the queue, so nothing is locked. ``reserved``: the header with which it
    holds a waiting seat, to be confirmed once the message exists. ``again``: the header of the job
    whose id is published once more. ``task_object`` is the task where this process knows it.
    """

    task: str
    id: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    queue: str = ""
    due_in: float = 0.0
    policy: Policy | None = None
    promised: bool = False
    by_celery: bool = False
    observed: bool = False
    counted: bool = False
    reserved: Header | None = None
    again: Header | None = None
    task_object: Any = None

    def carrying(self, options: Mapping[str, Any], reserved: Header | None) -> Call:
        """Return the call with other options; spelled out, because ``replace`` takes three times as long."""
        return Call(
            self.task, self.id, self.args, self.kwargs, options, self.queue, self.due_in, self.policy,
            self.promised, self.by_celery, self.observed, self.counted, reserved, self.again,
            self.task_object,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Execution:
    """One delivery that is about to start.

    ``late_for`` is the time for which the broker may deliver this message again if the worker dies
    (0 with early ack), ``visibility`` the broker's visibility timeout, both in seconds.
    """

    task: str
    id: str
    header: Header
    nonce: str
    retries: int = 0
    late_for: float = 0.0
    visibility: float = 3600.0
    redelivered: bool = False
    far: bool = False
    counted: bool = False
    task_object: Any = None


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one delivery, in whichever process learns of it.

    ``nonce`` is empty for a message that never reached a body. ``how`` is None for an end that no
    body saw (revoked, expired, killed): the seat is free, whether it waits or runs. ``reason`` is
    one word: success, failure, retry, ignore, reject, exit, revoked, expired, terminated, timeout,
    lost, unknown, rejected, undecodable.
    """

    task: str
    id: str
    header: Header
    nonce: str = ""
    how: How | None = None
    reason: str = ""
    marker_ttl: float = 60.0
    counted: bool = False


class Running:
    """The body that runs here and now: mutable, one per execution, seen only by its own thread."""

    __slots__ = ("active", "execution", "fence", "how", "protected", "reason", "republished")

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        #: True from just before the body until just after it.
        self.active = False
        #: This body has published its own id again.
        self.republished = False
        #: How the seat is given back; None: not here, the main process decides.
        self.how: How | None = None
        self.reason = ""
        #: The store has given us a running seat, with this fence.
        self.protected = False
        self.fence = 0

    def ended(self, how: How | None, reason: str) -> None:
        """Note how the body ended."""
        self.active = False
        self.how, self.reason = how, reason


running: ContextVar[Running | None] = ContextVar("jobdedup_running", default=None)
#: True while a task body runs here, with or without a policy; false in what Celery does around it.
in_body: ContextVar[bool] = ContextVar("jobdedup_in_body", default=False)
_untouched: ContextVar[bool] = ContextVar("jobdedup_untouched", default=False)


@contextmanager
def untouched() -> Iterator[None]:
    """Let publishes within the block pass the hook as they are: a put-off calls nothing at all."""
    mark = _untouched.set(True)
    try:
        yield
    finally:
        _untouched.reset(mark)


def is_untouched() -> bool:
    """Say whether publishes pass the hook as they are."""
    return _untouched.get()


#: The rest of a middleware chain.
Next = Callable[..., Any]
