"""Planning: the header and the request of a call, before any store is asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from django_jobdedup.call import Call
from django_jobdedup.conf import conf
from django_jobdedup.header import HEADER, NONCE, Header, Knobs, life_of, task_id_of
from django_jobdedup.middleware import mistake
from django_jobdedup.middleware.observing import fingerprint_beside, is_observed, knobs_beside
from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.identity import Identity, identify
from django_jobdedup.policies.resolve import BYPASS
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.process import process_name
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire


@dataclass(frozen=True, slots=True)
class Plan:
    """A call with the header it will get and what to ask the store for it; None where there is none."""

    call: Call
    outcome: Outcome = Outcome.ACCEPTED
    header: Header | None = None
    request: Acquire | None = None


def plan(call: Call) -> Plan:
    """Work out header and request of a call.

    Raises FingerprintError and PolicyError before anything is locked, but not for a publish that
    Celery makes itself: that one goes out without a lock.
    """
    if call.again is not None:
        return _plan_again(call, call.again)
    if call.policy is BYPASS:
        return Plan(call, Outcome.BYPASSED, Header(id=call.id))
    if not isinstance(call.policy, Unique):
        return Plan(call, Outcome.UNKNOWN)
    try:
        return _plan_new(call, call.policy)
    except Exception as error:
        if not call.by_celery:
            raise
        mistake.report("planning", call.task, error)
        return Plan(call, Outcome.UNPROTECTED)


def _plan_new(call: Call, policy: Unique) -> Plan:
    identity = identify(policy, call.task, call.task_object, call.args, call.kwargs, call.queue)
    if identity is None:  # unknown here: the worker, who knows the signature, does it on reception
        return Plan(call, Outcome.UNKNOWN)
    knobs = policy.knobs(identity.lock_name)
    if is_observed(policy):
        return _plan_observed(call, identity, knobs)
    header = Header(call.id, identity.shard, ((identity.fingerprint, knobs),), life=call.life)
    if knobs.at_dispatch and not call.observed:
        return Plan(call, Outcome.ACCEPTED, header, request_for(call, header))
    # No store is asked, so this clock has to tell the age of the message. The header of an observed call
    # takes nothing; a worker that knows it keeps equal runs apart.
    outcome = Outcome.OBSERVED if call.observed else Outcome.ACCEPTED
    return Plan(call, outcome, replace(header, at=time.time()))


def _plan_observed(call: Call, identity: Identity, knobs: Knobs) -> Plan:
    """A call that is only watched; on a queue that no worker of ours attends it takes nothing at all."""
    if call.observed:
        return Plan(call, Outcome.OBSERVED, Header(call.id))
    beside = fingerprint_beside(identity.fingerprint)
    header = Header(call.id, identity.shard, ((beside, knobs_beside(knobs)),), life=call.life)
    if knobs.at_dispatch:
        return Plan(call, Outcome.OBSERVED, header, request_for(call, header))
    return Plan(call, Outcome.OBSERVED, replace(header, at=time.time()))


def _plan_again(call: Call, old: Header) -> Plan:
    """A message of a job that was accepted before: never refused, one hand-over further."""
    header = replace(old.on_its_own(), n=old.n + 1)
    if not header.locks:
        return Plan(call, Outcome.BYPASSED, header)
    request = request_for(call, header, again=True) if header.knobs.at_dispatch else None
    return Plan(call, Outcome.ACCEPTED, header, request)


def request_for(call: Call, header: Header, *, again: bool = False, received: bool = False) -> Acquire:
    """Return the request for a waiting seat."""
    fingerprint, knobs = header.locks[0]
    return Acquire(
        Ref(header.shard, fingerprint),
        header.token,
        counts=knobs.counts,
        limit=knobs.limit,
        on_waiting=knobs.on_waiting,
        due_in=call.due_in,
        ttl=knobs.ttl,
        pending=conf.CONFIRM_WITHIN,
        again=again,
        received=received,
        by=process_name(),
        name=knobs.name,
        counted=call.counted,
    )


def header_of_copy(header: Header, token: str, n: int, ahead: float = 0.0, *, woken: bool = False) -> Header:
    """Return the header of one more message for the waiting job with this token.

    Its first message may still come, ``ahead`` seconds from now or in the queue: the end is remembered for
    as long. No store is asked, so this clock tells the age.
    """
    return replace(
        header, id=task_id_of(token), life=life_of(token), n=n, at=time.time(), put_offs=0, copies=ahead,
        woken=woken, asleep_until=0.0,
    )  # fmt: skip


def with_header(call: Call, header: Header, *, reserved: bool = False) -> Call:
    """Return the call with our header, flat in the message headers of its options.

    ``reserved``: the header stands for a waiting seat that has to be confirmed.
    """
    headers = {**(call.options.get("headers") or {}), HEADER: header.encode()}
    headers.pop(NONCE, None)
    return call.carrying({**call.options, "headers": headers}, header if reserved else call.reserved)
