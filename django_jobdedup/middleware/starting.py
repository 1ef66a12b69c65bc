"""Starting: the claim of a running seat, and what every answer means for the delivery."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Never

from django_jobdedup.call import Execution, running
from django_jobdedup.conf import conf
from django_jobdedup.header import Header, task_id_of
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.middleware.base import NotStarted
from django_jobdedup.middleware.burying import bury_execution
from django_jobdedup.middleware.conflicting import decision_at_start
from django_jobdedup.middleware.holding import hold
from django_jobdedup.middleware.observing import log_start, runs_anyway
from django_jobdedup.middleware.releasing import copies_live
from django_jobdedup.middleware.sleeping import is_shut, lie_down
from django_jobdedup.outcomes import Block, Dead, Decision, PutOff, Start, Suppress
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.process import process_name
from django_jobdedup.stores.requests import Claim, Withdraw
from django_jobdedup.stores.results import (
    Busy,
    Claimed,
    ClaimResult,
    Early,
    Exhausted,
    Superseded,
    Unavailable,
)

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
    store = stores[header.knobs.store]
    request = claim_request(header, execution.nonce, execution.late_for, counted=execution.counted)
    answer = store.claim(request)
    if not isinstance(answer, Claimed | Unavailable) and runs_anyway(header, answer):
        return _observed(execution, store, request, answer)
    if isinstance(answer, Busy) and is_shut(answer):
        answer = _contend(store, request, execution, answer)
    return _answered(execution, answer)


def _contend(store: Store, request: Claim, execution: Execution, busy: Busy) -> ClaimResult:
    """Let the strategy decide; the answer of a claim that came through after all. Raises NotStarted."""
    answer: ClaimResult = busy
    woken, rest = execution.header.woken, execution.header.asleep_until - time.time()
    if woken or rest > 0:
        # The strategy has its say over the message that sleeps, at the end of its pause: neither a wake
        # nor a hop is a conflict more.
        answer = lie_down(store, request, execution, answer)
        if isinstance(answer, Busy) and is_shut(answer):
            raise NotStarted(Start.PUT_OFF, task_id_of(answer.by), rest, asleep=woken)
        return answer
    decision = decision_at_start(execution, busy)
    if isinstance(decision, Block):
        answer, decision = hold(store, request, execution, decision.seconds, busy), decision.then
    if isinstance(decision, PutOff) and is_shut(answer):
        answer = lie_down(store, request, execution, answer)
    if isinstance(answer, Busy) and is_shut(answer):
        _closed_gate(execution, answer, decision)
    return answer


def _observed(execution: Execution, store: Store, request: Claim, answer: ClaimResult) -> Claimed | None:
    """Start all the same: with a seat if only the gate was closed, so that it is seen to run."""
    log_start(execution, answer)
    if isinstance(answer, Busy) and not answer.own:
        answer = store.claim(replace(request, gate=0, counted=False))
    return _answered(execution, answer) if isinstance(answer, Claimed) else None


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
        # A hand-over (retry, replace) is an end of its own kind: Celery's max_retries counts those.
        max_starts=knobs.max_starts and knobs.max_starts + header.n,
        by=process_name(),
        name=knobs.name,
        counted=counted,
    )


def _answered(execution: Execution, answer: ClaimResult) -> Claimed | None:
    """Take the seat, or say which delivery or job speaks for this one, or that its time has not come."""
    if isinstance(answer, Claimed):
        current = running.get()
        if current is not None:
            current.protected, current.fence = True, answer.fence
        return answer
    if isinstance(answer, Unavailable):
        if execution.header.knobs.on_store_error == "raise" and conf.MODE != "observe":
            raise NotStarted(Start.PUT_OFF, after=STORE_DOWN_PAUSE)
        return None
    if isinstance(answer, Superseded):
        raise NotStarted(Start.SUPERSEDED, by=task_id_of(answer.by))
    if isinstance(answer, Busy | Early):
        raise NotStarted(Start.PUT_OFF, by=task_id_of(getattr(answer, "by", "")), after=answer.retry_in)
    if isinstance(answer, Exhausted):
        reason = f"started {answer.starts - execution.header.n} times without an end"
        bury_execution(execution, reason)
        raise NotStarted(Start.DEAD, reason=reason)
    raise NotStarted(Start.DONE)


def _closed_gate(execution: Execution, busy: Busy, decision: Decision) -> Never:
    """Another job of this lock runs: carry out what the strategy has decided. Raises NotStarted."""
    header, by = execution.header, task_id_of(busy.by)
    if isinstance(decision, PutOff):
        raise NotStarted(Start.PUT_OFF, by=by, after=decision.after, strategy=True)
    if isinstance(decision, Dead):
        if not bury_execution(execution, decision.reason):  # nobody would ever see it
            raise NotStarted(Start.PUT_OFF, by=by, after=busy.retry_in, strategy=True)
        _close(execution)
        raise NotStarted(Start.DEAD, by=by, reason=decision.reason)
    if not isinstance(decision, Suppress) or decision.log:  # a start has nobody to raise to
        log_suppressed(execution.task, header, by)
    _close(execution, by=busy.by)
    raise NotStarted(Start.SUPPRESSED, by=by)


def _close(execution: Execution, by: str = "") -> None:
    """Close the id for good before it ends without a run, so that no later copy runs after all.

    ``by`` is the token of the job that covers it.
    """
    header = execution.header
    stores[header.knobs.store].withdraw(
        Withdraw(
            ref_of(header),
            header.token,
            n=header.n,
            waiting=True,
            marker_ttl=copies_live(header.knobs, execution.visibility),
            by=by,
        )
    )


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
