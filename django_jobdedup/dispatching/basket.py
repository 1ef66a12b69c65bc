"""The basket of ``dispatch_many``: calls that the hook hands over instead of publishing them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from django_jobdedup.call import Call
from django_jobdedup.dispatching.inline import unpublished


@dataclass(frozen=True, slots=True)
class Taken:
    """One call in the basket.

    ``way`` is Celery's own ``send_task``, ``place`` the number of the signature that the call came from,
    ``standin`` the result that Celery's code on the way back sees until the call is decided.
    """

    app: Any
    way: Callable[..., Any]
    call: Call
    place: int
    standin: Any

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

    def take(self, app: Any, way: Callable[..., Any], call: Call) -> Any:
        """Take a call; return a result for its id."""
        standin = unpublished(app, call)
        self.taken.append(Taken(app, way, call, self.place, standin))
        return standin


basket: Final[ContextVar[Basket | None]] = ContextVar("jobdedup_basket", default=None)
