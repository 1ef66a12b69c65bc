"""What a caller gets: Celery's own result object, marked with what the dispatch became."""

from __future__ import annotations

from typing import Any

from celery.result import AsyncResult

from django_jobdedup.dispatching.awaited import Following, last, read
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.keeping import durable
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.durable import DurableStore, Fate, Found
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
    found = _found(result)
    return Outcome.UNKNOWN if found is None else read(found[1])[0]


def job_of(result: Any) -> Any:
    """Return the result of the job that covers the call behind a result: the holder's where it was refused.

    Where that one has given its place to another since, the other's. For a result that was restored from
    its id, in any process: there a durable store knows it.
    """
    if isinstance(result, Following):
        id = last(result.awaited.store, result.awaited.look()[1] or result.id)
    else:
        found = _found(result)
        id = result.id if found is None else last(found[0], read(found[1])[1] or result.id)
    return result if id == result.id else result.app.AsyncResult(id)


def _found(result: Any) -> tuple[DurableStore, Fate] | None:
    """The store that keeps the call behind a result that nobody has marked, and what became of it."""
    if not stores.keep_calls or not isinstance(result, AsyncResult):
        return None
    for alias in stores:
        store = durable(alias)
        found = store.seek(result.id) if store is not None else None
        if store is not None and isinstance(found, Found):
            return store, found.fate
    return None
