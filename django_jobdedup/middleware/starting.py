"""Starting: the claim of a running seat, and what every answer means for the delivery."""

from __future__ import annotations

import logging
from typing import Never

from django_jobdedup.call import Execution, running
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.header import Header, Knobs, task_id_of
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.middleware.base import NotStarted
from django_jobdedup.middleware.releasing import copies_live
from django_jobdedup.outcomes import PutOff, Start, Suppress
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.process import process_name
from django_jobdedup.stores.requests import Claim, Withdraw
from django_jobdedup.stores.results import (
    Busy,
    Claimed,
    Done,
    Early,
    Exhausted,
    Superseded,
    Unavailable,
)
from django_jobdedup.strategies.base import Conflict, Strategy
from django_jobdedup.strategies.registry import strategy
from django_jobdedup.strategies.reschedule import Reschedule

logger = logging.getLogger("django_jobdedup")

#: Pause before a start is tried again while its store is down and the policy says ``raise``, seconds.
STORE_DOWN_PAUSE = 15.0


def claim(execution: Execution) -> Claimed | None:
    """Claim the running seat; None when the store is down and the policy says to run anyway.

    Raises NotStarted when the body must not run.
    """
    header = execution.header
    if header.refused_by:
        raise NotStarted(Start.SUPPRESSED, by=header.refused_by)
    answer = stores[header.knobs.store].claim(
        claim_request(header, execution.nonce, execution.late_for, counted=execution.counted)
    )
    if isinstance(answer, Claimed):
        current = running.get()
        if current is not None:
            current.protected, current.fence = True, answer.fence
        return answer
    if isinstance(answer, Unavailable):
        if header.knobs.on_store_error == "raise":
            raise NotStarted(Start.PUT_OFF, after=STORE_DOWN_PAUSE)
        return None
    if isinstance(answer, Busy) and not answer.own:
        _closed_gate(execution, answer)
    _elsewhere(execution, answer)


def claim_request(header: Header, nonce: str, late_for: float, *, counted: bool) -> Claim:
    """Return the request for the running seat of one delivery."""
    knobs = header.knobs
    return Claim(
        ref=ref_of(header),
        id=header.token,
        n=header.n,
        nonce=nonce,
        lease=knobs.lease,
        ttl=knobs.ttl,
        late=late_for,
        gate=knobs.gate,
        max_starts=knobs.max_starts,
        by=process_name(),
        name=knobs.name,
        counted=counted,
    )


def _elsewhere(execution: Execution, answer: Busy | Done | Superseded | Early | Exhausted) -> Never:
    """Another delivery or job speaks for this one, or its time has not come."""
    if isinstance(answer, Superseded):
        raise NotStarted(Start.SUPERSEDED, by=task_id_of(answer.by))
    if isinstance(answer, Busy | Early):
        raise NotStarted(Start.PUT_OFF, by=task_id_of(getattr(answer, "by", "")), after=answer.retry_in)
    raise NotStarted(Start.DONE)


def _closed_gate(execution: Execution, busy: Busy) -> Never:
    """Another job of this lock runs: the strategy decides. Raises NotStarted."""
    header, knobs, by = execution.header, execution.header.knobs, task_id_of(busy.by)
    decision = _strategy_of(knobs).decide(
        Conflict(
            side="execution",
            holder_id=by,
            state="R",
            retry_in=busy.retry_in,
            put_offs=header.put_offs,
            fingerprint=header.fingerprint,
            task=execution.task,
        )
    )
    if isinstance(decision, PutOff):
        raise NotStarted(Start.PUT_OFF, by=by, after=decision.after, strategy=True)
    if isinstance(decision, Suppress) and decision.log:
        log_suppressed(execution.task, header, by)
    # Closed for good before it ends as "suppressed", so that no later copy runs after all.
    stores[knobs.store].withdraw(
        Withdraw(
            ref_of(header),
            header.token,
            n=header.n,
            waiting=True,
            marker_ttl=copies_live(knobs, execution.visibility),
        )
    )
    raise NotStarted(Start.SUPPRESSED, by=by)


def log_suppressed(task: str, header: Header, holder_id: str) -> None:
    """Warn that a job ends without having run."""
    logger.warning(
        "%s[%s] does not run: job %s holds lock %s",
        task,
        header.id,
        holder_id,
        header.fingerprint[:12],
        extra={"action": "suppressed", "task": task, "task_id": header.id, "holder_id": holder_id},
    )


def _strategy_of(knobs: Knobs) -> Strategy:
    """The strategy that the sender has written; one that this version does not know puts the start off."""
    try:
        return strategy(knobs.execution)
    except PolicyError:
        return Reschedule()
