"""The one hook on dispatch: the class attribute ``Celery.send_task``.

Every real publish passes there: delay, send by name, beat, retry, callbacks, canvas; and it can
return instead of publishing, which no signal can.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from celery import Celery
from celery.utils.time import maybe_iso8601
from kombu.utils.uuid import uuid

from django_jobdedup import signals
from django_jobdedup.call import HEADER, Call, Header, is_untouched, running
from django_jobdedup.conf import conf
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.dispatching.presence import is_attended
from django_jobdedup.dispatching.promises import is_by_celery, is_promised
from django_jobdedup.dispatching.result import marked
from django_jobdedup.dispatching.routes import queue_of
from django_jobdedup.dispatching.transactions import warn_if_open
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.resolve import UNSET, Policy, policy_of, refuse_unbuilt
from django_jobdedup.policies.unique import Unique

#: Options of ours in a call; taken out before Celery sees them.
OPTIONS: Final = ("unique", "debounce", "throttle")
#: Tasks of Celery and of ours pass untouched.
PASSING: Final = ("celery.", "django_jobdedup.")

_POSITIONAL: Final = tuple(inspect.signature(Celery.send_task).parameters)[4:]


def install() -> None:
    """Put the hook in place; safe to call again.

    ``AppConfig.ready()`` does it. Call it yourself only in a process that never runs
    ``django.setup()``, such as a bare ``celery call``.
    """
    if not is_installed():
        setattr(Celery, "send_task", _hooked(Celery.send_task))  # noqa: B010 - mypy knows no better way


def uninstall() -> None:
    """Take the hook away again; leaves a wrapper alone that somebody else has put around ours."""
    if is_installed():
        setattr(Celery, "send_task", Celery.send_task.__wrapped__)  # type: ignore[attr-defined] # noqa: B010


def is_installed() -> bool:
    """Say whether the hook is in place."""
    return hasattr(Celery.send_task, "jobdedup")


def _hooked(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def send_task(
        self: Any, name: str, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any
    ) -> Any:
        options.update(zip(_POSITIONAL, rest, strict=False))
        ours: dict[str, Any] = {option: options.pop(option) for option in OPTIONS if option in options}
        if is_untouched() or name.startswith(PASSING) or not _is_list(args):
            return original(self, name, args, kwargs, **options)
        if conf.MODE == "off":
            return _off(self, original, name, args, kwargs, options)
        task_object = _task_object(self, name, options)
        again = _again(options)
        policy = _policy(name, task_object, ours)
        if policy is None and again is None:
            return original(self, name, args, kwargs, **options)
        call = _call(self, name, args, kwargs, options, policy, again, task_object)
        return _dispatch(self, original, call)

    send_task.jobdedup = True  # type: ignore[attr-defined]
    return send_task


def _is_list(args: object) -> bool:
    """Celery refuses other arguments itself, with its own words."""
    return args is None or isinstance(args, list | tuple)


def _policy(name: str, task_object: Any, ours: dict[str, Any]) -> Policy | None:
    refuse_unbuilt(name, task_object, ours)
    return policy_of(name, getattr(task_object, "unique", None), ours.get("unique", UNSET))


def _off(app: Any, original: Callable[..., Any], name: str, args: Any, kwargs: Any, options: Any) -> Any:
    headers = options.get("headers")
    if headers and HEADER in headers:
        options["headers"] = {key: value for key, value in headers.items() if key != HEADER}
    result = original(app, name, args, kwargs, **options)
    call = Call(task=name, id=result.id)
    return marked(app, Dispatch(call, Outcome.BYPASSED, result.id, result=result))


def _task_object(app: Any, name: str, options: dict[str, Any]) -> Any:
    """The task where this process knows it; never finalises the app for a send by name."""
    return options.get("task_type") or app._tasks.get(name)


def _again(options: dict[str, Any]) -> Header | None:
    """The header of the job whose id is published once more (retry, replace), or None.

    From the running body if it publishes its own id: tracing libraries lose headers on retry.
    """
    task_id = options.get("task_id")
    if not task_id:
        return None
    current = running.get()
    if current is not None and current.active and current.execution.id == task_id:
        return current.execution.header
    header = Header.decode((options.get("headers") or {}).get(HEADER))
    return header if header is not None and header.id == task_id else None


def _call(
    app: Any,
    name: str,
    args: Any,
    kwargs: Any,
    options: dict[str, Any],
    policy: Policy | None,
    again: Header | None,
    task_object: Any,
) -> Call:
    promised = again is None and is_promised(options)
    by_celery = is_by_celery(app, options)
    queue, observed = "", False
    if again is None and isinstance(policy, Unique):
        warn_if_open(name)
        queue = queue_of(app, name, args, kwargs, options)
        observed = policy.lock_type.at_dispatch and not is_attended(policy.store, queue)
    options["task_id"] = task_id = options.get("task_id") or uuid()
    return Call(
        task=name,
        id=task_id,
        args=tuple(args or ()),
        kwargs=dict(kwargs or {}),
        options=options,
        queue=queue,
        due_in=_due_in(app, options),
        policy=policy,
        promised=promised,
        by_celery=by_celery,
        observed=observed,
        counted=stack.counts_in_store(),
        again=again,
        task_object=task_object,
    )


def _due_in(app: Any, options: dict[str, Any]) -> float:
    """Seconds until the job may start; Celery lets a countdown win over an eta."""
    countdown, eta = options.get("countdown"), options.get("eta")
    if countdown:
        return max(0.0, float(countdown))
    if not eta:
        return 0.0
    when: Any = maybe_iso8601(eta)
    now = app.now() if when.tzinfo else datetime.now()
    return max(0.0, float((when - now).total_seconds()))


def _dispatch(app: Any, original: Callable[..., Any], call: Call) -> Any:
    def publish(calls: Sequence[Call]) -> list[Dispatch]:
        return [_publish(app, original, one) for one in calls]

    done = stack.dispatch([call], publish)[0]
    if done.error is not None:
        _announce(done)
        raise done.error
    if done.seat is not None:
        confirmer.add(done.seat)
    current = running.get()
    if call.again is not None and current is not None and current.execution.id == call.id:
        current.republished = True
    _announce(done)
    return marked(app, done, call.options.get("result_cls"))


def _publish(app: Any, original: Callable[..., Any], call: Call) -> Dispatch:
    try:
        result = original(app, call.task, call.args, call.kwargs, **call.options)
    except Exception as error:
        return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)
    return Dispatch(call, Outcome.UNKNOWN, call.id, result=result)


def _announce(done: Dispatch) -> None:
    signals.send(
        signals.dispatch_decided,
        type(done.call.task_object) if done.call.task_object is not None else None,
        call=done.call,
        outcome=done.outcome,
        holder_id=done.id,
        fingerprint=done.fingerprint,
    )
