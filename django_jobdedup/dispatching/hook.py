"""The one hook on dispatch: the class attribute ``Celery.send_task``.

Every real publish passes there: delay, send by name, beat, retry, callbacks, canvas; and it can
return instead of publishing, which no signal can.
"""

from __future__ import annotations

import functools
import inspect
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

from celery import Celery
from celery.utils.time import maybe_iso8601, maybe_make_aware
from kombu.utils.uuid import uuid

from django_jobdedup.call import Call, is_untouched, running
from django_jobdedup.conf import conf
from django_jobdedup.dispatching.announcing import announce
from django_jobdedup.dispatching.basket import basket
from django_jobdedup.dispatching.broker import publishing
from django_jobdedup.dispatching.deferral import after_commit
from django_jobdedup.dispatching.presence import is_attended
from django_jobdedup.dispatching.promises import is_by_celery, is_promised
from django_jobdedup.dispatching.result import marked, unmarked
from django_jobdedup.dispatching.routes import queue_of
from django_jobdedup.dispatching.sending import publish_one
from django_jobdedup.dispatching.transactions import warn_if_open
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.header import HEADER, Header, is_newer
from django_jobdedup.middleware import mistake, stack
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.keeping import keeps_calls
from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.resolve import PASSING, UNSET, Policy, policy_of, refuse_unbuilt
from django_jobdedup.policies.unique import Unique

#: Options of ours in a call; taken out before Celery sees them.
OPTIONS: Final = frozenset(("unique", "debounce", "throttle"))

_POSITIONAL: Final = tuple(inspect.signature(Celery.send_task).parameters)[4:]


class Switch:
    """Whether the hook works; hangs on its function and on each ``functools.wraps`` wrapper around it."""

    __slots__ = ("hook", "on")

    def __init__(self) -> None:
        self.on = True
        self.hook: object = None


def install() -> None:
    """Put the hook in place; safe to call again.

    ``AppConfig.ready()`` does it. Call it yourself only in a process that never runs
    ``django.setup()``, such as a bare ``celery call``.
    """
    switch = _switch()
    if switch is not None:
        switch.on = True
    else:
        setattr(Celery, "send_task", _hooked(Celery.send_task))  # noqa: B010 - mypy knows no better way


def uninstall() -> None:
    """Take the hook away again; one that somebody else has wrapped stays and lets everything pass."""
    switch = _switch()
    if switch is None:
        return
    switch.on = False
    if Celery.send_task is switch.hook:
        setattr(Celery, "send_task", Celery.send_task.__wrapped__)  # type: ignore[attr-defined] # noqa: B010


def is_installed() -> bool:
    """Say whether the hook is in place."""
    switch = _switch()
    return switch is not None and switch.on


def _switch() -> Switch | None:
    return getattr(Celery.send_task, "jobdedup", None)


def _hooked(original: Callable[..., Any]) -> Callable[..., Any]:
    switch = Switch()

    @functools.wraps(original)
    def send_task(
        self: Any, name: str, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any
    ) -> Any:
        if rest:
            names = _POSITIONAL[: len(rest)]
            if len(names) != len(rest) or not options.keys().isdisjoint(names):
                return original(self, name, args, kwargs, *rest, **options)  # has its own words for that
            options.update(zip(names, rest, strict=True))
        if not switch.on or publishing.get() == (options.get("task_id") or self):
            return original(self, name, args, kwargs, **options)
        ours: dict[str, Any] = {}
        if not OPTIONS.isdisjoint(options):
            ours = {option: options.pop(option) for option in OPTIONS if option in options}
        if is_untouched() or name.startswith(PASSING) or not is_call(args, kwargs):
            return original(self, name, args, kwargs, **options)
        if conf.MODE == "off":
            return _off(self, original, name, args, kwargs, options)
        call = _call_or_none(self, name, args, kwargs, options, ours)
        if (collecting := basket.get()) is not None:
            return collecting.take(self, original, call or _plain(name, args, kwargs, options))
        if call is None:
            return unmarked(original(self, name, args, kwargs, **options))
        return _dispatch(self, original, call)

    switch.hook = send_task
    send_task.jobdedup = switch  # type: ignore[attr-defined]
    return send_task


def is_call(args: object, kwargs: object) -> bool:
    """Say whether these can be arguments; Celery refuses others itself, with its own words."""
    return (args is None or isinstance(args, list | tuple)) and (kwargs is None or isinstance(kwargs, dict))


def _call_or_none(
    app: Any, name: str, args: Any, kwargs: Any, options: dict[str, Any], ours: dict[str, Any]
) -> Call | None:
    """The call as middleware sees it; None for one without a policy.

    From a publish that Celery makes itself nothing is raised: it would fail a parent that already ran.
    """
    try:
        if is_newer((options.get("headers") or {}).get(HEADER)):
            return None  # a body publishes its own id again: those who know the header read it
        task_object = _task_object(app, name, options)
        again = _again(options)
        policy = policy_for(name, task_object, ours)
        if policy is None and again is None:
            return None
        return _call(app, name, args, kwargs, options, policy, again, task_object)
    except Exception as error:
        if not is_by_celery(app, options):
            raise
        mistake.report("hook.call", name, error)
        return None


def _plain(name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> Call:
    """A call without a policy, as ``dispatch_many`` publishes it with the others."""
    options["task_id"] = options.get("task_id") or uuid()
    return Call(name, str(options["task_id"]), tuple(args or ()), dict(kwargs or {}), options)


def policy_for(name: str, task_object: Any, ours: dict[str, Any]) -> Policy | None:
    """Return the policy of a call; ``ours`` are our options that it was made with. Raises PolicyError."""
    refuse_unbuilt(name, task_object, ours)
    return policy_of(name, getattr(task_object, "unique", None), ours.get("unique", UNSET))


def _off(app: Any, original: Callable[..., Any], name: str, args: Any, kwargs: Any, options: Any) -> Any:
    headers = options.get("headers")
    if headers and HEADER in headers:
        options["headers"] = {key: value for key, value in headers.items() if key != HEADER}
    if (collecting := basket.get()) is not None:
        return collecting.take(app, original, _plain(name, args, kwargs, options), Outcome.BYPASSED)
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
        warn_if_open(name, policy.store)
        queue = queue_of(app, name, args, kwargs, options)
        seated = policy.lock_type.at_dispatch or keeps_calls(policy.store)
        observed = seated and not is_attended(policy.store, queue)
    given = _given_id(name, options)
    options["task_id"] = given or uuid()
    return Call(
        task=name,
        id=options["task_id"],
        args=tuple(args or ()),
        kwargs=dict(kwargs or {}),
        options=options,
        queue=queue,
        due_in=_due_in(app, options),
        policy=policy,
        promised=promised,
        by_celery=by_celery,
        observed=observed,
        life=secrets.token_hex(4) if given and again is None else "",
        counted=stack.counts_in_store(),
        again=again,
        task_object=task_object,
    )


def _given_id(name: str, options: dict[str, Any]) -> str:
    """The task id that the caller has chosen, as text; empty where Celery makes one."""
    given = options.get("task_id")
    if not given:
        return ""
    if not str(given).isprintable():
        raise PolicyError(f"{name} was not queued: its task_id {given!r} holds characters that do not print.")
    return str(given)


def _due_in(app: Any, options: dict[str, Any]) -> float:
    """Seconds until the job may start; Celery lets a countdown win over an eta."""
    countdown, eta = options.get("countdown"), options.get("eta")
    if countdown:
        return max(0.0, float(countdown))
    when = maybe_iso8601(eta) if eta else None
    if when is None:
        return 0.0
    when = maybe_make_aware(when, app.timezone)  # as the worker will read it
    return max(0.0, float((when - app.now()).total_seconds()))


def _dispatch(app: Any, original: Callable[..., Any], call: Call) -> Any:
    def publish(calls: Sequence[Call]) -> list[Dispatch]:
        return [publish_one(app, original, one) for one in calls]

    done = stack.dispatch([call], publish)[0]
    announce(done)
    if done.error is not None:
        raise done.error
    return result_of(app, done)


def result_of(app: Any, done: Dispatch) -> Any:
    """Return the result for the caller of a dispatch that went well."""
    return after_commit(app, done) if done.outcome is Outcome.DEFERRED else marked(app, done)
