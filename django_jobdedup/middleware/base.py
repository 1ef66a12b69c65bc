"""The base class of all middleware: every hook, doing nothing.

The product's own features are middleware like a user's; ``JOBDEDUP_MIDDLEWARE`` lists them, the
first is outermost. Exceptions pass outward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django_jobdedup.call import Call, Ending, Execution
from django_jobdedup.outcomes import Outcome, Start


@dataclass(frozen=True, slots=True)
class Seat:
    """A waiting seat that was taken for a published call: what the confirm needs."""

    store: str
    shard: int
    fingerprint: str
    id: str


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What one call became.

    ``id`` is the id that the caller shall hold, ``result`` what Celery answered to the publish (None
    when nothing was published), ``error`` what to raise to the caller. ``would``: what an observed call would
    have become: suppress, raise, reject, reschedule, rerun, replace; empty where nothing was in its way.
    """

    call: Call
    outcome: Outcome
    id: str
    fingerprint: str = ""
    result: Any = None
    error: BaseException | None = None
    would: str = ""


class NotStarted(Exception):  # noqa: N818 - control flow, not an error
    """Raised within ``execute`` instead of running the body; the worker carries it out.

    ``start`` says what the delivery became, ``by`` whose job stands in the way, ``after`` the
    seconds until the same id is published again when it is put off.
    """

    def __init__(
        self,
        start: Start,
        by: str = "",
        after: float = 0.0,
        strategy: bool = False,
        reason: str = "",
        asleep: bool = False,
    ) -> None:
        super().__init__(start.value)
        self.start = start
        self.by = by
        self.after = after
        #: A strategy chose the delay, so it counts as a put-off.
        self.strategy = strategy
        #: Why it is dead.
        self.reason = reason
        #: Another message of it sleeps, so that this one just ends when it is put off.
        self.asleep = asleep


class Middleware:
    """One feature around dispatch and execution. Subclass it and override what you need."""

    #: Ask the store to count its decisions, in the same atomic step: one such middleware is enough.
    counts_in_store: ClassVar[bool] = False
    #: Takes the waiting seats. A call that a durable store has kept is published from here inward: the
    #: layers around have seen it when it was made.
    locks: ClassVar[bool] = False

    def dispatch(
        self, calls: Sequence[Call], call_next: Callable[[Sequence[Call]], list[Dispatch]]
    ) -> list[Dispatch]:
        """Publish calls: return one ``Dispatch`` a call, in order.

        ``call_next`` takes the calls that shall go on, changed with ``dataclasses.replace``, fewer or
        more, and returns one ``Dispatch`` for each of those. A call that does not go on needs a
        ``Dispatch`` without a result; one that is added needs an id of its own.
        """
        return call_next(calls)

    def execute(self, execution: Execution, call_next: Callable[[Execution], Any]) -> Any:
        """Run the body through ``call_next(execution)``, return its value, let its exceptions pass."""
        return call_next(execution)

    def ended(self, ending: Ending) -> None:
        """Learn of the end of a delivery that no body saw, in the worker's main process."""
