"""Deciding: a call that was kept gets its seat or learns who holds it, after the commit or from the relay."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from json import dumps, loads
from typing import Any

from django_jobdedup.call import Call, Kept
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.header import HEADER, Header, life_of, task_id_of
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.base import Seat
from django_jobdedup.middleware.keeping import accepted_by
from django_jobdedup.middleware.merging import join, lent
from django_jobdedup.middleware.planning import request_for, with_header
from django_jobdedup.middleware.refusing import refuse
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stored_call.codec import Notes, decode
from django_jobdedup.stores.durable import DurableStore, Intent
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import Acquired, AcquireResult, Held, Merged, Outside, Unavailable


@dataclass(frozen=True, slots=True)
class Restored:
    """An intent with the call that it keeps, and the header to publish it with, if it has one."""

    intent: Intent
    call: Call
    header: Header | None


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided for one intent; ``by`` is the token of the holder that refused it or took it in.

    No verdict: the id has ended already, so there is nothing to do.
    """

    verdict: Verdict | None
    by: str = ""


def restore(app: Any, alias: str, intent: Intent) -> Restored:
    """Read an intent's call; nobody is left to whom anything could be raised. Raises StoredCallError."""
    call, notes = decode(intent.call, accept=accepted_by(app))
    task_object = app.tasks.get(call.task)
    # Of another id: a call that has joined a job of which none was stored stands in for it.
    options = dict(call.options) if call.id == task_id_of(intent.id) else lent(call.options)
    if notes.typed and task_object is not None:
        options["task_type"] = task_object
    header, id = Header.decode((options.get("headers") or {}).get(HEADER)), task_id_of(intent.id)
    if header is not None:
        header = replace(
            header,
            id=id,
            life=life_of(intent.id),
            n=intent.n,
            at=header.at or time.time(),
        )
    known = _known(alias, intent, notes, options, task_object)
    return Restored(intent, replace(call, id=id, **known), header)


def _known(
    alias: str, intent: Intent, notes: Notes, options: Mapping[str, Any], task_object: Any
) -> dict[str, Any]:
    """What this process adds to a stored call."""
    plain = Outcome(notes.plain) if notes.plain else None
    return {
        "options": options,
        "policy": None if notes.strategy is None else _policy(dumps(notes.strategy), notes.canvas),
        "counted": stack.counts_in_store(),
        "task_object": task_object,
        "kept": Kept(alias, intent, plain),
        "by_celery": True,
    }


@lru_cache(1000)
def _policy(strategy: str, canvas: str) -> Unique:
    """A policy that refuses as the sender's did; one that this version does not know skips."""
    try:
        return Unique("until_executing", on_conflict=loads(strategy), canvas=canvas)
    except PolicyError:
        return Unique("until_executing", on_conflict="skip", canvas="run")


def decide(store: DurableStore, restored: Sequence[Restored]) -> list[Decided | Unavailable]:
    """Decide in order; each answer is final unless the store did not answer."""
    places = [place for place, item in enumerate(restored) if _asks(item)]
    answers: dict[int, AcquireResult] = {}
    if places:
        results = store.acquire_many([_request(restored[place]) for place in places])
        answers = dict(zip(places, results, strict=True))
    return [_decide(item, answers.get(place)) for place, item in enumerate(restored)]


def _asks(item: Restored) -> bool:
    kept = item.call.kept
    plain = kept is None or kept.plain is not None
    return not (plain or item.intent.decided or item.header is None or not item.header.locks)


def _request(item: Restored) -> Acquire:
    assert item.header is not None  # noqa: S101 - _asks has looked
    request = replace(request_for(item.call, item.header), call=item.intent.call)
    return replace(request, args=item.intent.call) if request.on_waiting == "merge" else request


def _decide(item: Restored, answer: AcquireResult | None) -> Decided | Unavailable:
    call, header = item.call, item.header
    if answer is None:
        return Decided(_unasked(item))
    assert header is not None  # noqa: S101 - _asks has looked
    if isinstance(answer, Unavailable):
        return answer
    if isinstance(answer, Outside):
        return Decided(None)
    if isinstance(answer, Held):
        return Decided(refuse(call, header, answer), answer.id)
    if isinstance(answer, Merged):
        return Decided(join(call, header, answer), answer.id)
    if isinstance(answer, Acquired):
        return Decided(_seated(item, header))
    raise TypeError(f"a store answered {answer!r} to acquire")


def _unasked(item: Restored) -> Verdict:
    """A call that was decided before, or never takes a seat."""
    call, header, kept = item.call, item.header, item.call.kept
    if kept is not None and kept.plain is not None:
        going = call if header is None else with_header(call, header)
        return Verdict(going, kept.plain, fingerprint=header.fingerprint if header else "")
    if header is None or not header.locks:
        return Verdict(call, Outcome.ACCEPTED)
    return _seated(item, header)


def _seated(item: Restored, header: Header) -> Verdict:
    seat = Seat(header.knobs.store, header.shard, header.fingerprint, header.token)
    call = with_header(item.call, header, reserved=True)
    return Verdict(call, Outcome.ACCEPTED, True, seat, "", header.fingerprint)
