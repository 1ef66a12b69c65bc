"""Sending one call past the hook, and what a process notes once its message is out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django_jobdedup.call import Call, Running, running
from django_jobdedup.dispatching.broker import publishing
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.dispatching.inline import confirm, publish_again, publish_kept
from django_jobdedup.middleware.base import Dispatch, Seat
from django_jobdedup.outcomes import Outcome


def publish_one(app: Any, way: Callable[..., Any], call: Call) -> Dispatch:
    """Publish a call with ``way``, Celery's own ``send_task``; its error stands in the answer."""
    mark = publishing.set(call.id)
    try:
        if is_kept(call):
            return publish_kept(app, call, functools.partial(way, app))
        if (body := _body_of(call)) is not None:
            result = publish_again(app, call, functools.partial(way, app), body)
        else:
            result = way(app, call.task, call.args, call.kwargs, **{**call.options, "task_id": call.id})
    except Exception as error:
        return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)
    finally:
        publishing.reset(mark)
    if call.kept is not None and call.reserved is not None and (body is None or body.unsent is None):
        confirm([call.reserved])
    note(call)
    return Dispatch(call, Outcome.UNKNOWN, call.id, result=result)


def is_kept(call: Call) -> bool:
    """Say whether a row stands for this very message, so that the relay publishes it if need be."""
    return call.kept is not None and call.again is None


def _body_of(call: Call) -> Running | None:
    """The body that publishes its own id once more, where a durable store has the whole call."""
    if call.again is None or call.kept is None or call.reserved is None:
        return None
    current = running.get()
    return current if current is not None and current.execution.id == call.id else None


def note(*calls: Call) -> None:
    """Confirm the seats of messages soon, and tell a body that it has published its own id."""
    headers = [call.reserved for call in calls if call.kept is None and call.reserved is not None]
    if headers:
        confirmer.add(*(Seat(each.knobs.store, each.shard, each.fingerprint, each.token) for each in headers))
    current = running.get()
    if current is not None and any(call.again and call.id == current.execution.id for call in calls):
        current.republished = True
