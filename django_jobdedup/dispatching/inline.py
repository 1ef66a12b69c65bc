"""Publish a call that a durable store keeps, while its caller waits: at once, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_jobdedup.call import Call
from django_jobdedup.dispatching.broker import DOWN, breaker_of, publish
from django_jobdedup.header import Header
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.handler import stores


def publish_kept(app: Any, call: Call, way: Callable[..., Any]) -> Dispatch:
    """Publish a kept call and note that its message exists; a broker that is down is the relay's affair.

    ``way`` publishes past the hook. What the message itself is to blame for stands in the answer.
    """
    try:
        result = None if breaker_of(app).refuses() else publish(app, call, way)
    except DOWN:
        result = None
    except Exception as error:
        return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)
    if result is None:
        options = call.options
        result = (options.get("result_cls") or app.AsyncResult)(call.id)
        result.ignored = options.get("ignore_result")
    elif call.reserved is not None:
        confirm(call.reserved)
    return Dispatch(call, Outcome.UNKNOWN, call.id, result=result)


def confirm(header: Header) -> None:
    """Tell a durable store that a message exists, in this thread: no other has the caller's connection."""
    stores[header.knobs.store].confirm([(ref_of(header), header.token)])
