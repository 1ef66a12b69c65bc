"""Reserving: each call gets a verdict before anything is published."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django_jobdedup import signals
from django_jobdedup.call import HEADER, NONCE, Call, Header
from django_jobdedup.conf import conf
from django_jobdedup.exceptions import DuplicateDispatch, FingerprintError, PolicyError, StoreUnavailable
from django_jobdedup.middleware.base import Dispatch, Seat
from django_jobdedup.outcomes import Outcome, PutOff, Refuse, Suppress
from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.resolve import BYPASS
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.process import process_name
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import Acquired, AcquireResult, Held, Outside, Unavailable
from django_jobdedup.strategies.base import Conflict

logger = logging.getLogger("django_jobdedup")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What reserving decided for one call: publish it or not, and what the caller shall see.

    ``seat`` is the pending seat that a failed publish gives back.
    """

    call: Call
    outcome: Outcome
    publish: bool = True
    seat: Seat | None = None
    holder_id: str = ""
    fingerprint: str = ""
    error: Exception | None = None

    def refused(self) -> Dispatch:
        """Return the answer to a caller whose call is not published."""
        return Dispatch(
            self.call, self.outcome, self.holder_id or self.call.id, self.fingerprint, error=self.error
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A call with what to ask the store for it; no request when no store is asked."""

    call: Call
    outcome: Outcome = Outcome.ACCEPTED
    request: Acquire | None = None


def plan(call: Call) -> Plan:
    """Work out header and request of a call: pure, no store is asked.

    Raises FingerprintError and PolicyError before anything is locked.
    """
    if call.again is not None:
        return _plan_again(call, call.again)
    if call.policy is BYPASS:
        return Plan(with_header(call, Header(id=call.id)), Outcome.BYPASSED)
    if call.observed:
        return Plan(call, Outcome.OBSERVED)
    if not isinstance(call.policy, Unique):
        return Plan(call, Outcome.UNKNOWN)
    try:
        return _plan_new(call, call.policy)
    except (FingerprintError, PolicyError):
        raise
    except Exception as error:
        if not call.by_celery:
            raise
        signals.report("reserving.plan", error)
        return Plan(call, Outcome.UNPROTECTED)


def _plan_new(call: Call, policy: Unique) -> Plan:
    identity = identify(policy, call.task, call.task_object, call.args, call.kwargs, call.queue)
    if identity is None:  # unknown here: the worker, who knows the signature, does it on reception
        return Plan(call, Outcome.UNKNOWN)
    knobs = policy.knobs(identity.lock_name)
    header = Header(id=call.id, shard=identity.shard, locks=((identity.fingerprint, knobs),))
    return Plan(with_header(call, header), request=request_for(call, header) if knobs.at_dispatch else None)


def _plan_again(call: Call, old: Header) -> Plan:
    """A message of a job that was accepted before: never refused, one hand-over further."""
    header = replace(old, n=old.n + 1, put_offs=0)
    call = with_header(call, header)
    if not header.locks or not header.knobs.at_dispatch:
        return Plan(call, Outcome.ACCEPTED if header.locks else Outcome.BYPASSED)
    return Plan(call, request=request_for(call, header, again=True))


def request_for(call: Call, header: Header, *, again: bool = False, received: bool = False) -> Acquire:
    """Return the request for a waiting seat."""
    knobs = header.knobs
    return Acquire(
        ref=Ref(header.shard, header.fingerprint),
        id=header.id,
        counts=knobs.counts,
        limit=knobs.limit,
        due_in=call.due_in,
        ttl=knobs.ttl,
        pending=conf.CONFIRM_WITHIN,
        again=again,
        received=received,
        by=process_name(),
        name=knobs.name,
        counted=call.counted,
    )


def with_header(call: Call, header: Header) -> Call:
    """Return the call with its header, flat in the message headers of its options."""
    headers = {**(call.options.get("headers") or {}), HEADER: header.encode()}
    headers.pop(NONCE, None)
    return replace(call, header=header, options={**call.options, "headers": headers})


def reserve(plans: Sequence[Plan]) -> list[Verdict]:
    """Ask the stores, one round trip a store, and decide every call."""
    answers = _ask(plans)
    return [
        _verdict(item, answers[place]) if place in answers else _unasked(item)
        for place, item in enumerate(plans)
    ]


def _ask(plans: Sequence[Plan]) -> dict[int, AcquireResult]:
    by_store: dict[str, list[tuple[int, Acquire]]] = defaultdict(list)
    for place, item in enumerate(plans):
        if item.request is not None and item.call.header is not None:
            by_store[item.call.header.knobs.store].append((place, item.request))
    answers: dict[int, AcquireResult] = {}
    for alias, asked in by_store.items():
        results = stores[alias].acquire_many([request for _, request in asked])
        answers.update(zip((place for place, _ in asked), results, strict=True))
    return answers


def _unasked(item: Plan) -> Verdict:
    header = item.call.header
    return Verdict(item.call, item.outcome, fingerprint=header.fingerprint if header else "")


def _verdict(item: Plan, answer: AcquireResult) -> Verdict:
    call, header = item.call, item.call.header
    assert header is not None  # noqa: S101 - only calls with a header are asked for
    fingerprint = header.fingerprint
    if isinstance(answer, Acquired):
        call = with_header(call, replace(header, at=header.at or answer.at))
        seat = Seat(header.knobs.store, header.shard, fingerprint, call.id)
        return Verdict(call, Outcome.ACCEPTED, seat=seat, fingerprint=fingerprint)
    if isinstance(answer, Outside):
        return Verdict(call, Outcome.ACCEPTED, fingerprint=fingerprint)
    if isinstance(answer, Held):
        return _conflict(call, header, answer)
    if isinstance(answer, Unavailable):
        return _without_store(call, header, answer)
    raise TypeError(f"a store answered {answer!r} to acquire")


def _without_store(call: Call, header: Header, answer: Unavailable) -> Verdict:
    if header.knobs.on_store_error == "raise" and not call.by_celery and call.again is None:
        error = StoreUnavailable(
            f"{call.task} was not queued: its lock store does not answer ({answer.error}). "
            'Try again later, or give the policy on_store_error="proceed".'
        )
        return Verdict(call, Outcome.UNPROTECTED, publish=False, fingerprint=header.fingerprint, error=error)
    return Verdict(call, Outcome.UNPROTECTED, fingerprint=header.fingerprint)


def _conflict(call: Call, header: Header, held: Held) -> Verdict:
    """Let the strategy decide; a call that somebody waits for is never dropped."""
    verdict = Verdict(call, Outcome.SUPPRESSED, False, None, held.id, header.fingerprint)
    if call.promised:
        return replace(verdict, outcome=Outcome.BYPASSED, publish=True, holder_id="")
    assert isinstance(call.policy, Unique)  # noqa: S101 - an id that is published again is never refused
    decision = call.policy.dispatch_strategy.decide(_describe(call, header, held))
    if isinstance(decision, PutOff):
        later = _delayed(call, decision.after)
        return replace(verdict, call=later, outcome=Outcome.RESCHEDULED, publish=True, holder_id="")
    if isinstance(decision, Refuse):
        return _refuse(verdict, held)
    if isinstance(decision, Suppress) and decision.log:
        _log_refusal(verdict, held)
    return verdict


def _refuse(verdict: Verdict, held: Held) -> Verdict:
    if verdict.call.by_celery:  # an error here would fail a parent that already ran, or beat
        _log_refusal(verdict, held)
        return verdict
    error = DuplicateDispatch(
        f"{verdict.call.task} was not queued: job {held.id} holds its lock ({_STATES[held.state]}).",
        holder_id=held.id,
        fingerprint=verdict.fingerprint,
    )
    return replace(verdict, error=error)


def _describe(call: Call, header: Header, held: Held) -> Conflict:
    return Conflict(
        side="dispatch",
        holder_id=held.id,
        state=held.state,
        since=held.since,
        until=held.until,
        by=held.by,
        fingerprint=header.fingerprint,
        task=call.task,
    )


def _delayed(call: Call, after: float) -> Call:
    options: dict[str, Any] = dict(call.options)
    if call.due_in < after:
        options.pop("eta", None)
        options["countdown"] = after
    return replace(call, options=options, due_in=max(call.due_in, after))


_STATES = {"P": "being queued", "W": "waiting", "R": "running", "K": "kept until its TTL"}


def _log_refusal(verdict: Verdict, held: Held) -> None:
    logger.warning(
        "%s was not queued: job %s holds lock %s (%s)",
        verdict.call.task,
        held.id,
        verdict.fingerprint[:12],
        _STATES[held.state],
        extra={"action": "suppressed", "task": verdict.call.task, "holder_id": held.id},
    )
