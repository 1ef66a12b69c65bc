"""The hook on calls that run in their caller: the class attribute ``Task.apply``.

With ``task_always_eager``, and for ``apply()`` itself, Celery publishes nothing, so ``Celery.send_task``
never sees the call. But all of it passes ``Task.apply``: delay, the steps of a chain, the parts and the
body of a chord, link, and the retry that Celery starts in place.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final

from celery import Task

from django_jobdedup.call import Call, is_untouched, running
from django_jobdedup.conf import conf
from django_jobdedup.dispatching.hook import OPTIONS, Switch, is_call
from django_jobdedup.dispatching.result import marked
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.resolve import PASSING

_POSITIONAL: Final = tuple(inspect.signature(Task.apply).parameters)[3:]


def install() -> None:
    """Put the hook in place; safe to call again. ``AppConfig.ready()`` does it."""
    switch = _switch()
    if switch is not None:
        switch.on = True
    else:
        setattr(Task, "apply", _hooked(Task.apply))  # noqa: B010 - mypy knows no better way


def uninstall() -> None:
    """Take the hook away again; one that somebody else has wrapped stays and lets everything pass."""
    switch = _switch()
    if switch is None:
        return
    switch.on = False
    if Task.apply is switch.hook:
        setattr(Task, "apply", Task.apply.__wrapped__)  # type: ignore[attr-defined] # noqa: B010


def is_installed() -> bool:
    """Say whether eager calls pass the hook."""
    switch = _switch()
    return switch is not None and switch.on


def _switch() -> Switch | None:
    return getattr(Task.apply, "jobdedup", None)


def _hooked(original: Callable[..., Any]) -> Callable[..., Any]:
    switch = Switch()

    @functools.wraps(original)
    def apply(self: Any, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        if rest:
            names = _POSITIONAL[: len(rest)]
            if len(names) != len(rest) or not options.keys().isdisjoint(names):
                return original(self, args, kwargs, *rest, **options)  # has its own words for that
            options.update(zip(names, rest, strict=True))
        if not switch.on:
            return original(self, args, kwargs, **options)
        ours = {option: options.pop(option) for option in OPTIONS if option in options}
        if is_untouched() or self.name.startswith(PASSING) or not is_call(args, kwargs):
            return original(self, args, kwargs, **options)
        if conf.MODE == "off" or conf.EAGER == "bypass" or _replaces_itself(options):
            return _bypassed(self, original(self, args, kwargs, **options))
        # A process that only sends loads nothing of the worker's side.
        from django_jobdedup.eager.job import run

        return run(self, original, args, kwargs, options, ours)

    switch.hook = apply
    apply.jobdedup = switch  # type: ignore[attr-defined]
    return apply


def _replaces_itself(options: dict[str, Any]) -> bool:
    """Whether a body runs something under its own id (``replace``): it is inside its lock already."""
    current = running.get()
    return current is not None and current.active and current.execution.id == options.get("task_id")


def _bypassed(task: Any, result: Any) -> Any:
    return marked(task.app, Dispatch(Call(task.name, result.id), Outcome.BYPASSED, result.id, result=result))
