"""What a caller gets: Celery's own result object, marked with what the dispatch became."""

from __future__ import annotations

from typing import Any

from celery.result import AsyncResult

from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.outcomes import Outcome


def marked(app: Any, done: Dispatch) -> Any:
    """Return the result object of a dispatch, with ``duplicate``, ``outcome`` and ``fingerprint`` set.

    For a suppressed call it is one for the holder's id, so ``get()`` waits for the job that covers it.
    """
    result = done.result
    if result is None:
        options = done.call.options
        result = (options.get("result_cls") or app.AsyncResult)(done.id)
        result.ignored = options.get("ignore_result")  # as Celery does: nobody waits for no result
    return _mark(result, done.outcome, done.fingerprint)


def unmarked(result: Any) -> Any:
    """Return the result of a call without a policy, with the attributes that all others have.

    So code that looks at ``duplicate`` works on when a policy is taken away.
    """
    return _mark(result, Outcome.UNKNOWN, "") if isinstance(result, AsyncResult) else result


def _mark(result: Any, outcome: Outcome, fingerprint: str) -> Any:
    result.outcome, result.duplicate, result.fingerprint = outcome, outcome.duplicate, fingerprint
    return result


def outcome_of(result: Any) -> Outcome:
    """Return what the dispatch behind a result became.

    ``Outcome.UNKNOWN`` for a result that was restored from its id, and for a task without a policy.
    """
    outcome = getattr(result, "outcome", Outcome.UNKNOWN)
    return outcome if isinstance(outcome, Outcome) else Outcome.UNKNOWN
