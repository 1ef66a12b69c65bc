"""Locking: a waiting seat before the publish, a running seat around the body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_jobdedup.call import Call, Ending, Execution
from django_jobdedup.middleware.base import Dispatch, Middleware
from django_jobdedup.middleware.planning import plan
from django_jobdedup.middleware.releasing import give_back, note_unstarted, release_unseen
from django_jobdedup.middleware.reserving import reserve
from django_jobdedup.middleware.settling import give_up, settle
from django_jobdedup.middleware.starting import claim


class LockingMiddleware(Middleware):
    """Carry the policies out: the one middleware without which nothing is deduplicated."""

    def dispatch(
        self, calls: Sequence[Call], call_next: Callable[[Sequence[Call]], list[Dispatch]]
    ) -> list[Dispatch]:
        """Reserve, publish what was accepted, give back what could not be published."""
        verdicts = reserve([plan(call) for call in calls])
        going = [verdict.call for verdict in verdicts if verdict.publish]
        try:
            sent = iter(call_next(going) if going else ())
        except BaseException as error:
            give_up(verdicts, error)
            raise
        return [
            settle(verdict, next(sent), call_next) if verdict.publish else verdict.refused()
            for verdict in verdicts
        ]

    def execute(self, execution: Execution, call_next: Callable[[Execution], Any]) -> Any:
        """Claim, run the body, give the seat back whatever happens.

        Raises NotStarted when the body must not run.
        """
        if not execution.header.locks:
            return call_next(execution)
        claimed = claim(execution)
        try:
            return call_next(execution)
        except BaseException as error:
            note_unstarted(error)
            raise
        finally:
            give_back(execution, claimed)

    def ended(self, ending: Ending) -> None:
        """Free the seat of a delivery that no body saw the end of."""
        if ending.header.locks:
            release_unseen(ending)
