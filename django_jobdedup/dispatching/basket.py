"""The basket of ``dispatch_many``: calls that the hook hands over instead of publishing them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from django_jobdedup.call import Call
from django_jobdedup.dispatching.inline import unpublished
from django_jobdedup.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class Taken:
    """One call in the basket.

    ``way`` is Celery's own ``send_task``, ``place`` the number of the signature that the call came from,
    ``standin`` the result that Celery's code on the way back sees until the call is decided, ``outcome`` what
    it becomes where it does not pass the middleware.
    """

    app: Any
    way: Callable[..., Any]
    call: Call
    place: int
    standin: Any
    outcome: Outcome = Outcome.UNKNOWN

    @property
    def has_policy(self) -> bool:
        """Say whether the call passes the middleware."""
        return self.call.policy is not None or self.call.again is not None


class Basket:
    """Collects calls in order; one for each ``dispatch_many``, seen only by its own thread."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        #: The number of the signature whose calls come now.
        self.place = 0

    def take(self, app: Any, way: Callable[..., Any], call: Call, outcome: Outcome = Outcome.UNKNOWN) -> Any:
        """Take a call; return a result for its id."""
        standin = unpublished(app, call)
        self.taken.append(Taken(app, way, call, self.place, standin, outcome))
        return standin


basket: Final[ContextVar[Basket | None]] = ContextVar("jobdedup_basket", default=None)
