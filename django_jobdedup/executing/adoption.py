"""Adoption: a message that came without our header gets one.

From a foreign sender, or from one that does not know the task. It is fingerprinted in the worker's main
process and takes its waiting seat with its own id; refused, it ends at its start.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import cache
from typing import Any

from celery.app.task import Context

from django_jobdedup import signals
from django_jobdedup.call import Call
from django_jobdedup.conf import BY_NAME, conf
from django_jobdedup.exceptions import JobDedupError
from django_jobdedup.fingerprint.scope import default_tenant
from django_jobdedup.header import Header, life_of, task_id_of
from django_jobdedup.middleware import mistake, stack
from django_jobdedup.middleware.burying import bury
from django_jobdedup.middleware.conflicting import checked
from django_jobdedup.middleware.merging import with_arguments
from django_jobdedup.middleware.observing import fingerprint_beside, is_observed, knobs_beside
from django_jobdedup.middleware.planning import Plan, request_for
from django_jobdedup.middleware.promising import promised
from django_jobdedup.middleware.starting import log_suppressed
from django_jobdedup.outcomes import Block, Dead, PutOff, Refuse, Suppress
from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.resolve import PASSING, policy_of
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.results import Acquired, Held, Merged
from django_jobdedup.strategies.base import Conflict

logger = logging.getLogger("django_jobdedup")


def adopted(request: Any) -> Header | None:
    """Return the header of a message that came without one; None for a task without a policy."""
    task = request.task
    if conf.MODE == "off" or not stack.locks() or task.name.startswith(PASSING):
        return None
    policy = policy_of(task.name, getattr(task, "unique", None))
    if not isinstance(policy, Unique):
        return None
    id = request.request_dict.get("id")
    if not isinstance(id, str) or not id.isprintable():
        _warn_of_id(task.name)
        return None
    if _needs_a_tenant(policy.scope):
        _warn_of_tenant(task.name)
        return None
    queue = str(request.delivery_info.get("routing_key") or "")
    try:
        identity = identify(policy, task.name, task, request.args, request.kwargs, queue)
    except (JobDedupError, TypeError) as error:  # the body will say so; the message is not ours to drop
        mistake.report("adoption", task.name, error)
        return None
    if identity is None:
        return None
    knobs, fingerprint = policy.knobs(identity.lock_name), identity.fingerprint
    if is_observed(policy):
        knobs, fingerprint = knobs_beside(knobs), fingerprint_beside(fingerprint)
    # An id may come again in a message of its own; redeliveries keep the tag of their message (Redis).
    life = str((request.message.properties or {}).get("delivery_tag") or "")
    header = Header(request.id, identity.shard, ((fingerprint, knobs),), life=life)
    return _seated(request, policy, header) if knobs.at_dispatch else replace(header, at=time.time())


def _needs_a_tenant(scope: object) -> bool:
    """Whether only the sender knows whose work it is: here its job would meet that of another tenant."""
    parts = scope if isinstance(scope, list | tuple) else [scope]
    if "tenant" not in parts:
        return False
    return BY_NAME["SCOPE"].default != conf.SCOPE or default_tenant() != ""


@cache
def _warn_of_id(task: str) -> None:
    logger.warning(
        "a message of %s came without a lock, and its id is no printable text: it runs without one. Have its "
        "sender give an id such as a UUID.",
        task,
        extra={"action": "id_unusable", "task": task},
    )


@cache
def _warn_of_tenant(task: str) -> None:
    logger.warning(
        "a message of %s came without a lock, and only its sender knew the tenant: it runs without one. "
        "Send it from a process in which django_jobdedup is installed and the task is known.",
        task,
        extra={"action": "tenant_unknown", "task": task},
    )


def _seated(request: Any, policy: Unique, header: Header) -> Header:
    """Take the waiting seat: straight as waiting, for the message exists. Refused: ends at its start."""
    call = _call_of(request, whole=header.knobs.on_waiting == "merge")
    asked = with_arguments(Plan(call, header=header, request=request_for(call, header, received=True)))
    if asked.request is None:
        return header
    answer = stores[policy.store].acquire(asked.request)
    if isinstance(answer, Acquired):
        return replace(header, at=answer.at)
    if isinstance(answer, Held | Merged) and task_id_of(answer.id) == header.id:
        # Its sender took this seat; the header was lost or spoiled on the way.
        return replace(header, life=life_of(answer.id), n=int(request.request_dict.get("retries") or 0))
    if header.knobs.observe:
        return Header(header.id)
    if isinstance(answer, Merged) and not answer.publish:
        # Its arguments are with the job that waits. A copy that is asked for is this very message.
        if _is_promised(request):
            return promised(header, answer.id, policy.canvas)
        return replace(header, refused_by=task_id_of(answer.id))
    if isinstance(answer, Held) and _is_promised(request):
        return promised(header, answer.id, policy.canvas)
    if isinstance(answer, Held) and _is_refused(call, policy, header, answer):
        return replace(header, refused_by=task_id_of(answer.id))
    return header


def _call_of(request: Any, *, whole: bool = False) -> Call:
    """The message as a call; what Celery publishes itself must not raise, and neither must this.

    ``whole``: with all that would publish it again, for it is stored.
    """
    due_in = max(0.0, request.eta.timestamp() - time.time()) if request.eta else 0.0
    queue = str(request.delivery_info.get("routing_key") or "")
    return Call(
        task=request.task.name,
        id=request.id,
        args=tuple(request.args or ()),
        kwargs=dict(request.kwargs or {}),
        options=_options_of(request) if whole else {"queue": queue or None},
        due_in=due_in,
        by_celery=True,
        counted=stack.counts_in_store(),
        task_object=request.task,
    )


def _options_of(request: Any) -> dict[str, Any]:
    """The options that would publish this message again; where its workflow goes on stands in its body."""
    embedded = request._payload[2] or {}
    context = Context({**request.request_dict, **embedded, "delivery_info": request.delivery_info})
    signature = request.task.signature_from_request(context, request.args, request.kwargs)
    options = {name: value for name, value in signature.options.items() if value is not None}
    if request.eta:
        options["eta"] = request.eta
    return options


def _is_refused(call: Call, policy: Unique, header: Header, held: Held) -> bool:
    """Whether the strategy ends this message; one that fails lets it run behind the gate."""
    by = task_id_of(held.id)
    conflict = Conflict(side="dispatch", holder_id=by, state=held.state, task=call.task)
    try:
        decision = checked(policy.dispatch_strategy.decide(conflict))
        if isinstance(decision, Dead):
            bury(call, header, decision.reason)
    except Exception as error:
        signals.report("adoption", error)
        return False
    if isinstance(decision, Refuse) or (isinstance(decision, Suppress) and decision.log):
        log_suppressed(call.task, header, by)  # "raise" has nobody to raise to here
    return not isinstance(decision, PutOff | Block)


def _is_promised(request: Any) -> bool:
    """Whether a workflow waits for this message: its group stands in the headers, the rest in the body."""
    embedded = request._payload[2] or {}
    return bool(request.request_dict.get("group")) or any(
        embedded.get(name) for name in ("chain", "chord", "callbacks", "errbacks")
    )
