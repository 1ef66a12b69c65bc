"""One job that runs in its caller: dispatch, start and end in one call, each as in a process of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from celery.result import EagerResult
from celery.states import PENDING, SUCCESS
from kombu.utils.uuid import uuid

from django_jobdedup.call import HANGING, Call, in_body
from django_jobdedup.dispatching.announcing import announce
from django_jobdedup.dispatching.hook import policy_for
from django_jobdedup.dispatching.result import marked, unmarked
from django_jobdedup.dispatching.routes import queue_of
from django_jobdedup.executing.endings import unseen
from django_jobdedup.executing.in_place import Visit, take_up, visiting
from django_jobdedup.executing.wrapper import wrap
from django_jobdedup.header import HEADER, Header
from django_jobdedup.middleware import mistake, stack
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.outcomes import Outcome, Suppressed
from django_jobdedup.policies.unique import Unique

Apply = Callable[..., Any]


def run(
    task: Any, original: Apply, args: Any, kwargs: Any, options: dict[str, Any], ours: dict[str, Any]
) -> Any:
    """Dispatch a call, then start what was accepted; return its result.

    ``original`` is Celery's ``Task.apply``, ``options`` what it was called with but for ``ours``.
    """
    wrap(task.app.tasks.get(task.name, task))
    call = _call_or_none(task, args, kwargs, options, ours)
    if call is None:
        return unmarked(original(task, args, kwargs, **options))
    going: list[Call] = []

    def publish(calls: Sequence[Call]) -> list[Dispatch]:
        going.extend(calls)
        waiting = EagerResult(call.id, None, PENDING, name=call.task)
        return [Dispatch(one, Outcome.UNKNOWN, one.id, result=waiting) for one in calls]

    done = stack.dispatch([call], publish)[0]
    announce(done)
    if done.error is not None:
        raise done.error
    ended = [(one.id, _start(original, one)) for one in going]  # a middleware may have added some
    return _answer(task, done, dict(ended).get(done.id))


def _answer(task: Any, done: Dispatch, ended: tuple[Any, Visit] | None) -> Any:
    """The result that the caller gets; a body that did not run answers with who covers it."""
    if ended is None:
        return _refused(task, done, done.id)
    result, visit = ended
    if visit.refused_by is None:
        return marked(task.app, replace(done, result=result))
    return _refused(task, replace(done, outcome=Outcome.SUPPRESSED), visit.refused_by)


def _refused(task: Any, done: Dispatch, by: str) -> Any:
    result = EagerResult(by, Suppressed(by), SUCCESS, name=task.name)
    return marked(task.app, replace(done, id=by, result=result))


def _call_or_none(
    task: Any, args: Any, kwargs: Any, options: dict[str, Any], ours: dict[str, Any]
) -> Call | None:
    """The call as middleware sees it; None for one without a policy.

    Where Celery goes on after a body by itself (link, chord body) nothing is raised: it would fail a
    parent that already ran.
    """
    again = take_up(options.get("task_id") or "")
    by_celery = task.app.current_worker_task is not None and not in_body.get()
    try:
        policy = policy_for(task.name, task, ours)
        if policy is None and again is None:
            return None
        queue = queue_of(task.app, task.name, args, kwargs, options) if isinstance(policy, Unique) else ""
    except Exception as error:
        if not by_celery:
            raise
        mistake.report("eager.call", task.name, error)
        return None
    id = str(options.get("task_id") or uuid())
    return Call(
        task=task.name,
        id=id,
        args=tuple(args or ()),
        kwargs=dict(kwargs or {}),
        options={**options, "task_id": id},
        queue=queue,
        policy=policy,
        promised=again is None and any(options.get(name) for name in HANGING),
        by_celery=by_celery,
        # Celery gives every eager call an id, so nobody can tell whether the caller has chosen it.
        life=secrets.token_hex(4) if again is None else "",
        counted=stack.counts_in_store(),
        again=again,
        task_object=task,
        eager=True,
    )


def _start(original: Apply, call: Call) -> tuple[Any, Visit]:
    """Run the body through Celery; free the seat that no start or retry came for, whatever was raised."""
    header = Header.decode((call.options.get("headers") or {}).get(HEADER))
    headers = {name: value for name, value in (call.options.get("headers") or {}).items() if name != HEADER}
    options = {**call.options, "headers": headers or None}
    with visiting(call.id, header) as visit:
        try:
            return original(call.task_object, list(call.args), dict(call.kwargs), **options), visit
        finally:
            if header is not None and visit.owes:
                _end(call, replace(header, n=header.n + 1) if visit.started else header)


def _end(call: Call, header: Header) -> None:
    stack.ended(unseen(call.task_object.app, call.task, header, "failure"))
