"""A call and an execution, frozen; an ending; and the body that runs here and now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django_jobdedup.header import Header
from django_jobdedup.outcomes import How, Outcome

if TYPE_CHECKING:
    from django_jobdedup.policies.resolve import Policy
    from django_jobdedup.stores.durable import Intent

#: Options with which Celery hangs other work on the end of a call.
HANGING: Final = ("chain", "chord", "group_id", "link", "link_error")


@dataclass(frozen=True, slots=True)
class Kept:
    """The place of a call that a durable store keeps: the store's alias, and the intent.

    ``plain`` is the outcome of a call that never takes a seat (observed, bypassed, unknown), else None.
    """

    store: str
    intent: Intent
    plain: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One ``delay()``: task name, arguments and the whole of its options, headers included.

    ``due_in`` is the time until it may start (eta, countdown), seconds. ``promised``: somebody waits
    for this very id (chord, chain, link, or an id given by the caller). ``by_celery``: published by
    Celery itself, where an error would fail a parent that already ran. ``observed``: no worker with
    this app is known for the queue, so nothing is locked. ``life``: tells jobs apart to which the caller
    gives one id. ``reserved``: the header with which it
    holds a waiting seat, to be confirmed once the message exists. ``again``: the header of the job
    whose id is published once more. ``task_object`` is the task where this process knows it.
    ``kept``: where a durable store keeps the whole call. ``eager``: it runs in its caller, there is no
    message.
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
    life: str = ""
    counted: bool = False
    reserved: Header | None = None
    again: Header | None = None
    task_object: Any = None
    kept: Kept | None = None
    eager: bool = False

    def carrying(self, options: Mapping[str, Any], reserved: Header | None) -> Call:
        """Return the call with other options; spelled out, because ``replace`` takes three times as long."""
        return Call(
            self.task, self.id, self.args, self.kwargs, options, self.queue, self.due_in, self.policy,
            self.promised, self.by_celery, self.observed, self.life, self.counted, reserved, self.again,
            self.task_object, self.kept, self.eager,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Execution:
    """One delivery that is about to start.

    ``late_for`` is the time for which the broker may deliver this message again if the worker dies
    (0 with early ack), ``visibility`` the broker's visibility timeout, both in seconds. ``eager``: it runs
    in its caller, there is no message. ``args`` and ``kwargs`` are what the body is called with: the
    message's, or newer ones of calls that were merged into this job.
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
    eager: bool = False
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one delivery, in whichever process learns of it.

    ``nonce`` is empty for a message that never reached a body. ``how`` is None for an end that no
    body saw (revoked, expired, killed): the seat is free, whether it waits or runs. ``reason`` is
    one word: success, failure, retry, ignore, reject, exit, revoked, expired, terminated, timeout,
    lost, unknown, rejected, undecodable. ``unsent`` is the stored call that goes on with the job, where the
    broker did not take its message.
    """

    task: str
    id: str
    header: Header
    nonce: str = ""
    how: How | None = None
    reason: str = ""
    marker_ttl: float = 60.0
    counted: bool = False
    unsent: bytes | None = None


class Running:
    """The body that runs here and now: mutable, one per execution, seen only by its own thread."""

    __slots__ = ("active", "execution", "fence", "how", "protected", "reason", "republished", "unsent")

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        #: True from just before the body until just after it.
        self.active = False
        #: This body has published its own id again.
        self.republished = False
        #: The stored call of that publish, if the broker was down: the relay sends it.
        self.unsent: bytes | None = None
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
