"""What can come of a call, of a conflict, of a start; how a seat is given back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What one dispatch became; the caller reads it from ``result.outcome``."""

    ACCEPTED = "accepted"
    SUPPRESSED = "suppressed"
    #: Published under its own id, because somebody waits for that, but it does not do the work again.
    FOLLOWED = "followed"
    RESCHEDULED = "rescheduled"
    #: Joined the job that waits, which runs with these arguments.
    RERUN = "rerun"
    #: Written in the caller's transaction; decided after its commit.
    DEFERRED = "deferred"
    UNPROTECTED = "unprotected"
    OBSERVED = "observed"
    BYPASSED = "bypassed"
    #: A result restored from its id, a task without a policy, a dispatch that ended with an error:
    #: nothing is known about it.
    UNKNOWN = "unknown"

    @property
    def duplicate(self) -> bool | None:
        """Say whether another job covers the call; None as long as that is not decided."""
        if self is Outcome.DEFERRED:
            return None
        return self in (Outcome.SUPPRESSED, Outcome.RERUN, Outcome.FOLLOWED)


class Start(StrEnum):
    """What one delivery became when a worker was about to start its body."""

    RUN = "run"
    #: Another delivery of the same id has ended or speaks for it: nothing to do.
    DONE = "done"
    SUPERSEDED = "superseded"
    PUT_OFF = "put_off"
    SUPPRESSED = "suppressed"
    #: Has taken the outcome of the job it follows.
    FOLLOWED = "followed"
    #: Given up: it is in the list of dead jobs, and ends as a failure.
    DEAD = "dead"
    #: The store was down and the policy says ``proceed``.
    UNPROTECTED = "unprotected"


class How(StrEnum):
    """How a run gives its seat back: the argument of the store verb ``finish``."""

    RELEASE = "release"
    KEEP = "keep"
    #: This body has published its own id again (retry, replace).
    HANDOVER = "handover"
    #: The broker will deliver this message again.
    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True)
class Suppress:
    """Decision: no job of its own. ``log`` asks for a warning."""

    log: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """Decision: raise ``DuplicateDispatch`` to the caller."""


@dataclass(frozen=True, slots=True)
class PutOff:
    """Decision: publish again under the same id, ``after`` seconds from now."""

    after: float


@dataclass(frozen=True, slots=True)
class Dead:
    """Decision: no job any more, but a row in the list of dead jobs, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Block:
    """Decision: hold the start for at most ``seconds``, asking again; after it, ``then``."""

    seconds: float
    then: Suppress | PutOff | Dead | Refuse | Block


#: What a strategy makes of a conflict.
Decision = Suppress | Refuse | PutOff | Dead | Block


class Suppressed(dict[str, str]):
    """The value of a start that was skipped: it ends as success, so chains and ``get()`` go on.

    A dict, so that every result serializer carries it: ``{"suppressed_by": task_id}``.
    """

    def __init__(self, by: str) -> None:
        super().__init__(suppressed_by=by)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self["suppressed_by"],)

    @property
    def by(self) -> str:
        """Return the task id of the job that covers this one."""
        return self["suppressed_by"]
