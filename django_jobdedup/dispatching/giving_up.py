"""A kept call that is given up before any run: who waits for its result is told, as by a run that fails."""

from __future__ import annotations

from typing import Any, Final

from celery import states
from celery.app.task import Context
from celery.backends.base import DisabledBackend

from django_jobdedup import signals
from django_jobdedup.exceptions import JobDead
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware.deciding import restore
from django_jobdedup.middleware.out_of_time import let_pass
from django_jobdedup.stores.durable import DurableStore, Intent

#: Options of a call that say who waits for it, and their names in a request.
HANGING: Final = {
    "chain": "chain",
    "chord": "chord",
    "link_error": "errbacks",
    "group_id": "group",
    "group_index": "group_index",
    "root_id": "root_id",
    "parent_id": "parent_id",
}


def tell(app: Any, store: DurableStore, intent: Intent, reason: str) -> None:
    """Store ``JobDead`` as the result; end its chain and chord, call its error callbacks. Never raises."""
    id = task_id_of(intent.id)
    try:
        error = JobDead(f"{intent.name} is dead: {reason}.", id, reason)
        request = _request(app, store, intent, id)
        is_kept = _is_kept(app, request)
        if is_kept and app.backend.get_state(id) in states.READY_STATES:
            return  # a message of it was out all the same
        app.backend.mark_as_failure(id, error, request=request, store_result=is_kept)
    except Exception as error:
        let_pass(error)
        signals.report("giving_up", error)


def _request(app: Any, store: DurableStore, intent: Intent, id: str) -> Any:
    try:
        call = restore(app, store.alias, intent).call
    except Exception as error:
        let_pass(error)
        return Context(id=id, task=intent.name)  # it cannot be read: perhaps it is dead for that
    hanging = {word: call.options.get(name) for name, word in HANGING.items()}
    errbacks = hanging["errbacks"]
    hanging["errbacks"] = errbacks if errbacks is None or isinstance(errbacks, list | tuple) else [errbacks]
    ignored = call.options.get("ignore_result")
    return Context(
        id=id, task=call.task, args=call.args, kwargs=call.kwargs, ignore_result=ignored, **hanging
    )


def _is_kept(app: Any, request: Any) -> bool:
    """Whether a result would be kept where others find it: not one that goes to the queue of its caller."""
    task = app.tasks.get(request.task)
    ignored = request.ignore_result
    if ignored is None:
        ignored = app.conf.task_ignore_result if task is None else task.ignore_result
    backend = app.backend
    return not (ignored or isinstance(backend, DisabledBackend) or not type(backend).persistent)
