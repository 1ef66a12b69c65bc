"""Publish a call that a durable store keeps, while its caller waits: at once, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from kombu.exceptions import OperationalError

from django_jobdedup import signals
from django_jobdedup.call import Call
from django_jobdedup.dispatching.broker import DOWN, breaker_of, publish
from django_jobdedup.header import Header
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.durable import DurableStore
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.requests import Acquire


def publish_kept(app: Any, call: Call, way: Callable[..., Any]) -> Dispatch:
    """Publish a kept call and note that its message exists; a broker that is down is the relay's affair.

    ``way`` publishes past the hook. What the message itself is to blame for stands in the answer.
    """
    breaker = breaker_of(app)
    try:
        if breaker.refuses():
            raise OperationalError(f"the broker did not answer a moment ago: {breaker.error}")
        result = publish(app, call, way)
    except Exception as error:
        if not isinstance(error, DOWN) or not _is_written(call):
            return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)
        return Dispatch(call, Outcome.UNKNOWN, call.id, result=_unpublished(app, call))
    if call.reserved is not None:
        confirm(call.reserved)
    return Dispatch(call, Outcome.UNKNOWN, call.id, result=result)


def _is_written(call: Call) -> bool:
    """Whether the relay will find the call: in the row of its seat, or in one that is written now.

    A call that goes without a seat (somebody waits for it, or it is put off) has no row so far.
    """
    kept = call.kept
    if call.reserved is not None or kept is None:
        return call.reserved is not None
    intent = kept.intent
    request = Acquire(intent.ref, intent.id, name=intent.name, call=intent.call, counted=call.counted)
    try:
        cast(DurableStore, stores[kept.store]).defer([request])
    except Exception as error:  # the store is down as well: the caller has to know
        signals.report("inline.defer", error)
        return False
    return True


def _unpublished(app: Any, call: Call) -> Any:
    result = (call.options.get("result_cls") or app.AsyncResult)(call.id)
    result.ignored = call.options.get("ignore_result")
    return result


def confirm(header: Header) -> None:
    """Tell a durable store that a message exists, in this thread: no other has the caller's connection."""
    stores[header.knobs.store].confirm([(ref_of(header), header.token)])
