"""What a caller gets: Celery's own result object, marked with what the dispatch became."""

from __future__ import annotations

from typing import Any

from celery.result import AsyncResult

from django_jobdedup.dispatching.awaited import Following, read
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.keeping import durable
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.durable import Found
from django_jobdedup.stores.handler import stores


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

    For a result that was restored from its id a durable store is asked, if there is one. ``UNKNOWN``
    where no store keeps the call, and for a task without a policy.
    """
    outcome = getattr(result, "outcome", None)
    if isinstance(outcome, Outcome):
        return outcome
    return _found(result)[0]


def job_of(result: Any) -> Any:
    """Return the result of the job that covers the call behind a result: the holder's where it was refused.

    For one that was restored from its id, in any process: there a durable store knows who refused it.
    """
    by = result.awaited.look()[1] if isinstance(result, Following) else _found(result)[1]
    return result.app.AsyncResult(by) if by else result


def _found(result: Any) -> tuple[Outcome, str]:
    """What the rows say of a result that nobody has marked."""
    if not stores.keep_calls or not isinstance(result, AsyncResult):
        return Outcome.UNKNOWN, ""
    for alias in stores:
        store = durable(alias)
        found = store.seek(result.id) if store is not None else None
        if isinstance(found, Found):
            return read(found.fate)
    return Outcome.UNKNOWN, ""
