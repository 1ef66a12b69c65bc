"""Publish a call that a durable store keeps, while its caller waits: at once, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from kombu.exceptions import OperationalError

from django_jobdedup import signals
from django_jobdedup.call import Call, Running
from django_jobdedup.dispatching.broker import breaker_of, is_down, publish
from django_jobdedup.header import Header
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.out_of_time import let_pass
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.durable import DurableStore
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
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
        done = left_to_the_relay(app, call, error)
        hand_over([done])
        return done
    if call.reserved is not None:
        confirm([call.reserved])
    return Dispatch(call, Outcome.UNKNOWN, call.id, result=result)


def publish_again(app: Any, call: Call, way: Callable[..., Any], body: Running) -> Any:
    """Publish the id of a running body once more (retry, replace) and return the result.

    With the broker down the next message is left to the relay: the end of the body makes it due. Raises what
    the message itself is to blame for.
    """
    assert call.kept is not None  # noqa: S101 - the caller has looked
    body.unsent = None
    breaker = breaker_of(app)
    try:
        if breaker.refuses():
            raise OperationalError(f"the broker did not answer a moment ago: {breaker.error}")
        return publish(app, call, way)
    except Exception as error:
        if not is_down(error):
            raise
        body.unsent = call.kept.intent.call
        return unpublished(app, call)


def left_to_the_relay(app: Any, call: Call, error: Exception) -> Dispatch:
    """Answer for a kept call that could not be published: no error where the relay will find it."""
    if not is_down(error) or not _is_written(call):
        return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)
    return Dispatch(call, Outcome.UNKNOWN, call.id, result=unpublished(app, call))


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
        let_pass(error)
        signals.report("inline.defer", error)
        return False
    return True


def hand_over(left: Sequence[Dispatch]) -> None:
    """Make the rows of calls that could not be published due now: a relay need not wait for a sender."""
    by_store: dict[str, list[tuple[Ref, str]]] = {}
    for done in left:
        if done.error is None and done.call.kept is not None:
            intent, header = done.call.kept.intent, done.call.reserved
            row = (intent.ref, intent.id) if header is None else (ref_of(header), header.token)
            by_store.setdefault(done.call.kept.store, []).append(row)
    for alias, rows in by_store.items():
        cast(DurableStore, stores[alias]).give_back(rows)


def unpublished(app: Any, call: Call) -> Any:
    """Return the result object of a call that is not published here and now."""
    result = (call.options.get("result_cls") or app.AsyncResult)(call.id)
    result.ignored = call.options.get("ignore_result")
    return result


def confirm(headers: Sequence[Header]) -> None:
    """Tell durable stores that messages exist, in this thread: no other has the caller's connection."""
    by_store: dict[str, list[tuple[Ref, str]]] = {}
    for header in headers:
        by_store.setdefault(header.knobs.store, []).append((ref_of(header), header.token))
    for alias, seats in by_store.items():
        stores[alias].confirm(seats)
