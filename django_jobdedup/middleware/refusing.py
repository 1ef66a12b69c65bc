"""Refusing: a call met a live holder, its strategy decides what it becomes."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from django_jobdedup.call import HANGING, Call
from django_jobdedup.exceptions import DuplicateDispatch
from django_jobdedup.header import Header, task_id_of
from django_jobdedup.middleware.planning import with_header
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.outcomes import Outcome, PutOff, Refuse, Suppress
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.results import Held
from django_jobdedup.strategies.base import Conflict

logger = logging.getLogger("django_jobdedup")

#: The states of a holder, for people.
STATES: Final = {"P": "being queued", "W": "waiting", "R": "running", "K": "kept until its TTL"}


def refuse(call: Call, header: Header, held: Held) -> Verdict:
    """Let the strategy decide; a call that somebody waits for is never dropped."""
    fingerprint = header.locks[0][0]
    if call.promised and not _is_repeated(call, held):
        return Verdict(with_header(call, header), Outcome.BYPASSED, fingerprint=fingerprint)
    assert isinstance(call.policy, Unique)  # noqa: S101 - an id that is published again is never refused
    decision = call.policy.dispatch_strategy.decide(_describe(call, fingerprint, held))
    if isinstance(decision, PutOff):
        later = with_header(_delayed(call, decision.after), header)
        return Verdict(later, Outcome.RESCHEDULED, fingerprint=fingerprint)
    verdict = Verdict(call, Outcome.SUPPRESSED, False, None, task_id_of(held.id), fingerprint)
    if isinstance(decision, Refuse):
        return _raise(verdict, held)
    if isinstance(decision, Suppress) and decision.log:
        _log(verdict, held)
    return verdict


def _is_repeated(call: Call, held: Held) -> bool:
    """Whether the caller has given the id of the very job that holds the lock: its result is that one's.

    Not where more hangs on this call than its id: a chain would lose its next step.
    """
    alone = not any(call.options.get(name) for name in HANGING)
    return alone and task_id_of(held.id) == call.id


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


def _delayed(call: Call, after: float) -> Call:
    options: dict[str, Any] = dict(call.options)
    if call.due_in < after:
        options.pop("eta", None)
        options["countdown"] = after
    return replace(call, options=options, due_in=max(call.due_in, after))


def _log(verdict: Verdict, held: Held) -> None:
    logger.warning(
        "%s was not queued: job %s holds lock %s (%s)",
        verdict.call.task,
        verdict.holder_id,
        verdict.fingerprint[:12],
        STATES[held.state],
        extra={"action": "suppressed", "task": verdict.call.task, "holder_id": verdict.holder_id},
    )
