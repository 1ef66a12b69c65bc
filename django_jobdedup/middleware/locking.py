"""Locking: a waiting seat before the publish, a running seat around the body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_jobdedup.call import Call, Ending, Execution
from django_jobdedup.middleware.base import Dispatch, Middleware
from django_jobdedup.middleware.keeping import keep
from django_jobdedup.middleware.merging import newest, with_arguments
from django_jobdedup.middleware.planning import Plan, plan
from django_jobdedup.middleware.releasing import give_back, is_inside, note_unstarted, release_unseen
from django_jobdedup.middleware.reserving import reserve
from django_jobdedup.middleware.settling import settled
from django_jobdedup.middleware.starting import claim
from django_jobdedup.stores.handler import stores


class LockingMiddleware(Middleware):
    """Carry the policies out: the one middleware without which nothing is deduplicated."""

    locks = True

    def dispatch(
        self, calls: Sequence[Call], call_next: Callable[[Sequence[Call]], list[Dispatch]]
    ) -> list[Dispatch]:
        """Reserve, publish what was accepted, give back what could not be published.

        A call that a durable store has written into the caller's transaction is ``deferred``.
        """
        plans = [with_arguments(plan(call)) for call in calls]
        if not stores.keep_calls:
            return _lock(plans, call_next)
        kept = keep(plans)
        done = iter(_lock([item for item in kept if isinstance(item, Plan)], call_next))
        return [item if isinstance(item, Dispatch) else next(done) for item in kept]

    def execute(self, execution: Execution, call_next: Callable[[Execution], Any]) -> Any:
        """Claim, run the body, give the seat back whatever happens.

        Raises NotStarted when the body must not run.
        """
        if not execution.header.locks:
            return call_next(execution)
        inside = is_inside(execution)
        claimed = claim(execution)
        try:
            return call_next(newest(execution, claimed))
        except BaseException as error:
            note_unstarted(error)
            raise
        finally:
            give_back(execution, claimed, inside=inside)

    def ended(self, ending: Ending) -> None:
        """Free the seat of a delivery that no body saw the end of."""
        if ending.header.locks:
            release_unseen(ending)


def _lock(plans: Sequence[Plan], call_next: Callable[[Sequence[Call]], list[Dispatch]]) -> list[Dispatch]:
    return settled(reserve(plans), call_next)
