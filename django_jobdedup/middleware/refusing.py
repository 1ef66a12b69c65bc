"""Refusing: a call met a live holder, its strategy decides what it becomes."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from django_jobdedup.call import HANGING, Call
from django_jobdedup.exceptions import DuplicateDispatch
from django_jobdedup.header import Header, task_id_of
from django_jobdedup.middleware import mistake
from django_jobdedup.middleware.burying import bury
from django_jobdedup.middleware.conflicting import checked
from django_jobdedup.middleware.keeping import app_of
from django_jobdedup.middleware.observing import log_call, would_at_dispatch
from django_jobdedup.middleware.planning import with_header
from django_jobdedup.middleware.promising import keep_promise, would_keep
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.middleware.visibility import longest_sleep, sleeps_until
from django_jobdedup.outcomes import Block, Dead, Outcome, PutOff, Refuse, Suppress
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.results import Held
from django_jobdedup.strategies.base import Conflict

logger = logging.getLogger("django_jobdedup")

#: The states of a holder, for people.
STATES: Final = {"P": "being queued", "W": "waiting", "R": "running", "K": "kept until its TTL"}


def refuse(call: Call, header: Header, held: Held) -> Verdict:
    """Let the strategy decide; a call that somebody waits for is never dropped."""
    fingerprint = header.locks[0][0]
    if call.promised and not is_repeated(call, held.id):
        return keep_promise(call, header, held.id)
    decision = _decide(call, fingerprint, held)
    if decision is None:
        return Verdict(with_header(call, header), Outcome.UNPROTECTED, fingerprint=fingerprint)
    if isinstance(decision, PutOff):
        later, until = _delayed(call, decision.after)
        later = with_header(later, replace(header, put_offs=1, asleep_until=until))
        return Verdict(later, Outcome.RESCHEDULED, fingerprint=fingerprint)
    verdict = Verdict(call, Outcome.SUPPRESSED, False, None, task_id_of(held.id), fingerprint)
    if isinstance(decision, Refuse):
        return _raise(verdict, held)
    if isinstance(decision, Dead):
        return _bury(verdict, header, decision.reason, held.id)
    if decision.log:
        _log(verdict, held)
    return verdict


def observed(call: Call, header: Header, held: Held) -> Verdict:
    """Publish a call that would have met a holder, outside of the lock, and say what it would have become."""
    fingerprint = header.fingerprint
    promised = call.promised and not is_repeated(call, held.id)
    try:
        decision = None if promised else _decide(call, fingerprint, held)
    except Exception as error:  # a strategy of the project's own
        mistake.report("strategy", call.task, error)
        decision = None
    would = would_keep(call) if promised else would_at_dispatch(call, held.state, decision)
    if would:
        log_call(call, would, held.id)
    return Verdict(with_header(call, Header(call.id)), Outcome.OBSERVED, fingerprint=fingerprint, would=would)


def _decide(call: Call, fingerprint: str, held: Held) -> Suppress | Refuse | PutOff | Dead | None:
    """Ask the strategy; None where one of the project's own has failed and Celery itself publishes."""
    assert isinstance(call.policy, Unique)  # noqa: S101 - an id that is published again is never refused
    try:
        decision = checked(call.policy.dispatch_strategy.decide(_describe(call, fingerprint, held)))
        if isinstance(decision, Block):
            raise TypeError("a strategy decided to wait at dispatch, where nothing waits: only a start can")
        return decision
    except Exception as error:
        if not call.by_celery:
            raise
        mistake.report("strategy", call.task, error)
        return None


def _bury(verdict: Verdict, header: Header, reason: str, by: str) -> Verdict:
    """Write the dead row before the caller goes on; without one nobody would ever see the job."""
    try:
        bury(verdict.call, header, reason, by)
    except Exception as error:
        if not verdict.call.by_celery:
            raise
        mistake.report("burying", verdict.call.task, error)
    return replace(verdict, dead=True)


def is_repeated(call: Call, token: str) -> bool:
    """Say whether the caller has given the id of the very job with this token: its result is that one's.

    Not where more hangs on this call than its id: a chain would lose its next step.
    """
    alone = not any(call.options.get(name) for name in HANGING)
    return alone and task_id_of(token) == call.id


def _raise(verdict: Verdict, held: Held) -> Verdict:
    if verdict.call.by_celery:  # an error here would fail a parent that already ran, or beat
        _log(verdict, held)
        return verdict
    error = DuplicateDispatch(
        f"{verdict.call.task} was not queued: job {verdict.holder_id} holds its lock ({STATES[held.state]}).",
        holder_id=verdict.holder_id,
        fingerprint=verdict.fingerprint,
    )
    return replace(verdict, error=error)


def _describe(call: Call, fingerprint: str, held: Held) -> Conflict:
    return Conflict(
        side="dispatch",
        holder_id=task_id_of(held.id),
        state=held.state,
        since=held.since,
        until=held.until,
        by=held.by,
        fingerprint=fingerprint,
        task=call.task,
    )


def _delayed(call: Call, after: float) -> tuple[Call, float]:
    """Return the later call, and until when it sleeps where it has to hop."""
    if call.due_in >= after:
        return call, 0.0
    later = min(after, max(call.due_in, longest_sleep(app_of(call))))
    options: dict[str, Any] = dict(call.options)
    options.pop("eta", None)
    options["countdown"] = later
    return replace(call, options=options, due_in=later), sleeps_until(after, later)


def _log(verdict: Verdict, held: Held) -> None:
    logger.warning(
        "%s was not queued: job %s holds lock %s (%s)",
        verdict.call.task,
        verdict.holder_id,
        verdict.fingerprint[:12],
        STATES[held.state],
        extra={"action": "suppressed", "task": verdict.call.task, "holder_id": verdict.holder_id},
    )
