"""Freeing: a seat whose message has vanished is freed, after proof and by compare-and-delete.

A wrong proof would cost a redundant run: the claim works without a seat, and the gate holds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Final

from django_jobdedup import signals
from django_jobdedup.brokers.unreadable import Unreadable
from django_jobdedup.header import task_id_of
from django_jobdedup.recovery.duty import UNAVAILABLE, Tally
from django_jobdedup.recovery.lost_runs import has_waiters, store_loss
from django_jobdedup.recovery.proof import PATIENCE, vanished
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.results import Doubt, Unavailable, Withdrawn

logger = logging.getLogger("django_jobdedup")

#: Doubtful seats that one reading of the brokers is worth; more would take too much memory.
MOST: Final = 100_000

Doubtful = Sequence[tuple[Store, Doubt]]


def free(doubtful: Doubtful, patience: float = PATIENCE) -> Tally:
    """Free those whose message is nowhere; none at all while a broker cannot be read.

    Counts what was ``freed``, what was left alone without a proof as ``unproven``.
    """
    tally = Tally()
    for start in range(0, len(doubtful), MOST):
        some = doubtful[start : start + MOST]
        try:
            gone = vanished({task_id_of(doubt.holder.id) for _, doubt in some}, patience)
        except Unreadable as error:
            _say_unproven(str(error))
            tally["unproven"] += len(some)
            continue
        for store, doubt in some:
            if task_id_of(doubt.holder.id) in gone:
                _free(store, doubt, tally)
    return tally


def _free(store: Store, doubt: Doubt, tally: Tally) -> None:
    answer = store.remove(doubt.ref, doubt.holder)
    if isinstance(answer, Unavailable):
        tally[UNAVAILABLE] += 1
    elif isinstance(answer, Withdrawn):
        tally["freed"] += 1
        _log(doubt)
        _answer(doubt)


def _answer(doubt: Doubt) -> None:
    """Tell whoever waits for the result; nobody else can."""
    if not has_waiters(doubt.name):
        return
    sentence = (
        "The message of this job is in no queue and in no worker's hands (a purged queue, a broker that lost "
        "its memory, a worker killed between taking and starting it): nobody will run it. Call it again."
    )
    try:
        store_loss(task_id_of(doubt.holder.id), doubt.holder.by, sentence)
    except Exception as error:  # a result backend that does not answer: the seat is free all the same
        signals.report("recovery.freeing", error)


def _log(doubt: Doubt) -> None:
    logger.warning(
        "job %s no longer holds lock %s: its message is in no queue and in no worker's hands",
        task_id_of(doubt.holder.id),
        doubt.name,
        extra={
            "action": "freed",
            "task_id": task_id_of(doubt.holder.id),
            "fingerprint": doubt.ref.fingerprint,
        },
    )


@cache
def _say_unproven(reason: str) -> None:
    """Once per process and reason: the next pass will meet the same."""
    logger.warning(
        "no lock without news is freed before its TTL, as its message may still be there: %s",
        reason,
        extra={"action": "unproven"},
    )
