"""Keeping: a call whose policy names a durable store is written down whole before it goes anywhere.

Outside of a transaction it is written together with its waiting seat. Inside the caller's transaction it
is written without one: nothing is decided and nothing leaves the database before the commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from celery import current_app
from celery._state import get_current_worker_task
from kombu.serialization import prepare_accept_content

from django_jobdedup.call import Call, Execution, Kept
from django_jobdedup.exceptions import JobDedupError, StoredCallError
from django_jobdedup.header import Header
from django_jobdedup.middleware import mistake
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.planning import Plan, request_for, with_header
from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.resolve import BYPASS, policy_of
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stored_call.codec import LARGEST, Notes, encode
from django_jobdedup.stores.durable import DurableStore, Intent
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire


def keep(plans: Sequence[Plan]) -> list[Plan | Dispatch]:
    """Return for each plan the one to go on with, or what a call became that waits for a commit.

    Raises StoredCallError before anything is written, and what the database raises.
    """
    done: list[Plan | Dispatch] = []
    deferred: dict[str, list[Acquire]] = {}
    for item in plans:
        alias = _alias(item)
        store = durable(alias)
        if store is not None and _is_watched(item):
            # Nothing is put off to a commit, and no seat may be taken inside of a transaction.
            done.append(_unasked(item) if store.in_transaction() else item)
        elif store is None or item.call.eager:
            done.append(item)
        elif item.call.again is None and store.in_transaction():
            done.append(_without_seat(item, alias, deferred))
        else:
            done.append(item if _plain(item) else _with_seat(item, alias))
    for alias, requests in deferred.items():
        cast(DurableStore, stores[alias]).defer(requests)
    return done


def _is_watched(item: Plan) -> bool:
    return item.header is not None and bool(item.header.locks) and item.header.knobs.observe


def _unasked(item: Plan) -> Plan:
    return replace(item, header=Header(item.call.id), request=None)


def keeps_calls(alias: str) -> bool:
    """Say whether a store keeps whole calls."""
    return stores.keep_calls and durable(alias) is not None


def durable(alias: str) -> DurableStore | None:
    """Return the store if it keeps whole calls; None for any other, and for one that is not configured."""
    if not alias or not stores.keep_calls or alias not in stores or not stores[alias].durable:
        return None
    return cast(DurableStore, stores[alias])


def _alias(item: Plan) -> str:
    """The store of a call's policy, also where the call goes past it or cannot be told from others here."""
    call, header = item.call, item.header
    if item.outcome is Outcome.UNPROTECTED:
        return ""
    if header is not None and header.locks:
        return header.knobs.store
    if call.again is not None:
        return ""
    policy = call.policy
    if policy is BYPASS:
        try:
            policy = policy_of(call.task, getattr(call.task_object, "unique", None))
        except JobDedupError:  # the call has asked to hear nothing of its policy
            return ""
    return policy.store if isinstance(policy, Unique) else ""


def _plain(item: Plan) -> bool:
    """Whether this call never takes a seat."""
    return item.outcome in (Outcome.BYPASSED, Outcome.OBSERVED, Outcome.UNKNOWN)


def _without_seat(item: Plan, alias: str, deferred: dict[str, list[Acquire]]) -> Plan | Dispatch:
    """Note what to write into the transaction; a publish of Celery's own that cannot be kept goes at once."""
    try:
        request, call = _written(item, alias, decided=False)
    except StoredCallError as error:
        if not item.call.by_celery:
            raise
        mistake.report("keeping", item.call.task, error)
        return replace(item, outcome=Outcome.UNPROTECTED, request=None)
    deferred.setdefault(alias, []).append(request)
    return Dispatch(call, Outcome.DEFERRED, call.id, item.header.fingerprint if item.header else "")


def _with_seat(item: Plan, alias: str) -> Plan:
    """Ask for the seat with the whole call; what Celery publishes itself takes a seat without it at worst."""
    try:
        request, call = _written(item, alias, decided=True)
    except StoredCallError as error:
        if not item.call.by_celery and item.call.again is None:
            raise
        mistake.report("keeping", item.call.task, error)
        return item
    return replace(item, call=call, request=request)


def _written(item: Plan, alias: str, *, decided: bool) -> tuple[Acquire, Call]:
    header = item.header
    call = item.call if header is None else with_header(item.call, header)
    body = stored(call, plain=item.outcome if _plain(item) else None)
    request = item.request or _request(item)
    request = replace(request, call=body)
    intent = Intent(request.ref, request.id, header.n if header else 0, request.name, body, decided)
    kept = Kept(alias, intent, item.outcome if _plain(item) else None)
    return request, replace(item.call, kept=kept)


def _request(item: Plan) -> Acquire:
    """The request of a call that needs no seat at dispatch: its row refuses nobody."""
    call, header = item.call, item.header
    if header is not None and header.locks:
        return request_for(call, header, again=call.again is not None)
    token = Header(call.id, life=call.life).token
    alone = hashlib.sha256(token.encode()).hexdigest()
    return Acquire(Ref(0, alone), token, counts="", due_in=call.due_in, name=call.task, counted=False)


def stored(call: Call, plain: Outcome | None = None, largest: int = LARGEST) -> bytes:
    """Return the whole call as bytes, in its task's serializer.

    What Celery would add from this moment, the parent and where to send the reply, is added now. Raises
    StoredCallError.
    """
    app = app_of(call)
    options = {**call.options, **_moment(app, call)}
    policy = call.policy
    notes = Notes(
        promised=call.promised,
        by_celery=call.by_celery,
        plain=plain.value if plain is not None else "",
        strategy=policy.dispatch_strategy.encode() if isinstance(policy, Unique) else None,
        typed=options.get("task_type") is not None,
        canvas=policy.canvas if isinstance(policy, Unique) else "run",
        app=str(app.main or ""),
    )
    serializer = (
        options.get("serializer") or getattr(call.task_object, "serializer", None) or app.conf.task_serializer
    )
    return encode(
        replace(call, options=options), notes, serializer=serializer, accept=accepted_by(app), largest=largest
    )


def app_of(call: Call | Execution) -> Any:
    """Return the app that publishes a call, or runs it."""
    return current_app if call.task_object is None else call.task_object.app


def accepted_by(app: Any) -> frozenset[str]:
    """Return the content types that the project accepts from its broker."""
    return _content_types(tuple(app.conf.accept_content or ()))


@lru_cache(100)
def _content_types(accepted: tuple[str, ...]) -> frozenset[str]:
    return frozenset(prepare_accept_content(accepted) or ())


def _moment(app: Any, call: Call) -> dict[str, Any]:
    """What ``send_task`` would read from the running task, and from this thread."""
    options = call.options
    found: dict[str, Any] = {"reply_to": options.get("reply_to") or app.thread_oid}
    parent = get_current_worker_task()
    root_id = options.get("root_id") or call.id
    if parent is not None:
        request = parent.request
        root_id = options.get("root_id") or request.root_id or request.id
        found["parent_id"] = options.get("parent_id") or request.id
        if app.conf.task_inherit_parent_priority and "priority" not in options:
            found["priority"] = (request.delivery_info or {}).get("priority")
    return {**found, "root_id": root_id}
