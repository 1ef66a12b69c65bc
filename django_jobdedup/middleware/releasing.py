"""Releasing: a running seat is given back by token; a release never fails a finished job."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import cast

from django_jobdedup import signals
from django_jobdedup.call import Ending, Execution, running
from django_jobdedup.header import Knobs
from django_jobdedup.middleware import discarding
from django_jobdedup.middleware.addressing import ref_of, token_of
from django_jobdedup.middleware.base import NotStarted
from django_jobdedup.middleware.waking import wake
from django_jobdedup.outcomes import How, Start
from django_jobdedup.stores.durable import DurableStore
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.later import Step, later
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Withdraw
from django_jobdedup.stores.results import Claimed, Gone, Kept, NotMine, Released, Unavailable

logger = logging.getLogger("django_jobdedup")

#: How long an ended id is remembered when the broker cannot have copied it: publish retries, seconds.
SHORT_MARKER = 60.0
#: Endings of a run that no body saw and that Celery stores as a failure.
FAILURES = ("timeout", "lost")


def give_back(execution: Execution, claimed: Claimed | None, *, inside: bool = False) -> None:
    """Finish the run that has just ended here; says nothing when the main process has to decide.

    ``inside``: the claim was made in a transaction that somebody has opened around the body, so the end
    belongs there too. One that the body has opened, and left open, is closed by Celery, uncommitted: its
    end is written over another connection.
    """
    current = running.get()
    if current is None or current.how is None:
        return
    ending = Ending(
        task=execution.task,
        id=execution.id,
        header=execution.header,
        nonce=execution.nonce,
        how=current.how,
        reason=current.reason,
        marker_ttl=marker_life(execution, claimed),
        counted=execution.counted,
        unsent=current.unsent if current.how is How.HANDOVER else None,
    )
    aside = not inside and is_inside(execution)
    if aside:
        _log_left_open(execution)
    # A run without a running seat leaves its waiting one behind.
    if claimed is None and ending.how is How.RELEASE:
        return _take(partial(_withdraw, ending), aside=aside)
    if claimed is None and ending.how is How.KEEP and stores[execution.header.knobs.store].durable:
        return _take(partial(_keep, ending, late_for=execution.late_for), aside=aside)
    # Only now is a lost lock news: a finish that is made up later meets what came meanwhile.
    now, made_up = (partial(_finish, ending, protected=new) for new in (claimed is not None, False))
    _take(now, made_up, aside=aside)


def is_inside(execution: Execution) -> bool:
    """Say whether this thread has an open transaction on the database of the job's store."""
    store = stores[execution.header.knobs.store]
    return store.durable and cast(DurableStore, store).in_transaction()


def _log_left_open(execution: Execution) -> None:
    logger.warning(
        "%s[%s] has left a transaction open on the database of its store %r: what it has written there is "
        "lost unless somebody commits it; its lock is freed over another connection",
        execution.task,
        execution.id,
        execution.header.knobs.store,
        extra={"action": "left_open", "task": execution.task, "task_id": execution.id},
    )


def note_unstarted(error: BaseException) -> None:
    """Note how the seat is given back when a layer between the claim and the body has raised.

    A put-off keeps it as a waiting one for the message of the same id.
    """
    current = running.get()
    if current is None or current.reason:
        return
    if isinstance(error, NotStarted) and error.start is Start.PUT_OFF:
        current.ended(How.REQUEUE, "put off")
    else:
        current.ended(How.RELEASE, "failure")


def release_unseen(ending: Ending) -> None:
    """Free the seat of a delivery that no body saw the end of, whether it waits or runs."""
    _take(partial(_withdraw, ending))


def _take(step: Step, made_up: Step | None = None, *, aside: bool = False) -> None:
    """Take a step now, or once the store answers again (then as ``made_up``).

    ``aside``: leave it to the thread that makes up for steps, which has a connection of its own.
    """
    if aside:
        return later.add(made_up or step)
    try:
        if not step():
            later.add(made_up or step)
    except Exception as error:
        # Perhaps a time limit that struck before the question was sent: asked once more.
        signals.report("releasing", error)
        later.add(made_up or step)


def marker_life(execution: Execution, claimed: Claimed | None) -> float:
    """Return how long the ended id must be remembered, seconds (PROTOCOL, rule 7).

    Long where the broker may hold a copy: late ack, a redelivered message, one that waited for more than
    half of the visibility timeout, or was published several times.
    """
    header, at = execution.header, execution.header.at
    waited = claimed.at - at if claimed is not None and at else 0.0
    copies = execution.late_for or execution.redelivered or execution.far
    # One more message may have been published: for merged calls, or to wake it while another sleeps.
    copies = copies or header.knobs.on_waiting == "merge" or header.put_offs or header.woken
    # A negative wait tells of a clock that is ahead: as far as it is, the message may have waited as well.
    if copies or abs(waited) > execution.visibility / 2:
        return header.copies + copies_live(header.knobs, execution.visibility)
    return SHORT_MARKER


def copies_live(knobs: Knobs, visibility: float) -> float:
    """Return how long a copy of an ended message may still come, seconds.

    A copy waits in the queue like any message, behind whatever is there: as long as the TTL allows.
    """
    return max(knobs.ttl, 2 * visibility)


def _finish(ending: Ending, *, protected: bool) -> bool:
    header, how = ending.header, ending.how
    assert how is not None  # noqa: S101 - callers have looked
    request = Finish(
        token_of(header, ending.nonce), header.n, how, ending.marker_ttl, header.knobs.name, ending.counted,
        ending.reason, ending.unsent,
    )  # fmt: skip
    answer = stores[header.knobs.store].finish(request)
    if isinstance(answer, NotMine) and protected:
        signals.send(signals.lock_lost, None, id=header.id, fingerprint=header.fingerprint)
    elif isinstance(answer, Released | Kept) and answer.waiter is not None:
        wake(answer.waiter)
    if isinstance(answer, Released):
        signals.send(signals.lock_released, None, ending=ending)
    if isinstance(answer, NotMine) and ending.unsent is not None:
        return _leave_to_the_relay(ending, ending.unsent)
    return not isinstance(answer, Unavailable)


def _keep(ending: Ending, late_for: float) -> bool:
    """Keep the lock of a run that had no running seat: it takes one to end with.

    Left waiting, its row would be published again once its time is over.
    """
    header, knobs = ending.header, ending.header.knobs
    # Without a gate: it has run, whoever runs beside it now.
    request = Claim(
        ref_of(header), header.token, header.n, ending.nonce, lease=knobs.lease, ttl=knobs.ttl, late=late_for,
        gate=0, name=knobs.name, counted=False,
    )  # fmt: skip
    answer = stores[knobs.store].claim(request)
    if isinstance(answer, Claimed):
        return _finish(ending, protected=False)
    return not isinstance(answer, Unavailable) and _withdraw(ending)


def _leave_to_the_relay(ending: Ending, unsent: bytes) -> bool:
    """Make the next message of a job due that holds no running seat any more, or never did."""
    header, ref = ending.header, ref_of(ending.header)
    store = cast(DurableStore, stores[header.knobs.store])
    missed = store.missed(ref, header.token, "its retry could not be published", 0)
    if isinstance(missed, Gone):
        store.defer([Acquire(ref, header.token, name=header.knobs.name, call=unsent)])
    return not isinstance(missed, Unavailable)


def _withdraw(ending: Ending) -> bool:
    """Free a seat without knowing whether it waits or runs.

    First as a waiting seat: that leaves a running one alone. Then, with the delivery's own nonce,
    as a running one. Both are harmless when the seat is free already.
    """
    header = ending.header
    answer = stores[header.knobs.store].withdraw(
        Withdraw(
            ref_of(header), header.token, header.n, True, marker_ttl=ending.marker_ttl, reason=ending.reason
        )
    )
    if isinstance(answer, Gone) and ending.nonce:
        kept = header.knobs.keeps and header.knobs.keep_on_failure and ending.reason in FAILURES
        if not _finish(replace(ending, how=How.KEEP if kept else How.RELEASE), protected=False):
            return False
    if isinstance(answer, Gone):
        return ending.reason not in discarding.REASONS or discarding.free_vanished(ending, _withdraw)
    if not isinstance(answer, Unavailable):
        signals.send(signals.lock_released, None, ending=ending)
    return not isinstance(answer, Unavailable)
