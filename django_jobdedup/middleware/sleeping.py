"""Sleeping: a start that its strategy puts off lies down in the line of its lock, so that a release wakes it.

Its message sleeps and comes by itself, whatever happens here: this only saves the time in between.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from celery.utils.time import maybe_iso8601

from django_jobdedup import signals
from django_jobdedup.call import Execution
from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.middleware.delivered import delivered
from django_jobdedup.middleware.keeping import durable, stored
from django_jobdedup.middleware.out_of_time import let_pass
from django_jobdedup.middleware.planning import with_header
from django_jobdedup.middleware.visibility import longest_sleep
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.requests import Claim, Sleep
from django_jobdedup.stores.results import Busy, ClaimResult, Open

#: Largest call that is kept for a wake, bytes: a line has a hundred places, in the memory of a Redis.
LARGEST: Final = 64 * 1024
#: How often a start whose gate has opened meanwhile, and was shut again by another, asks once more.
TRIES: Final = 3


def is_shut(answer: ClaimResult) -> bool:
    """Say whether the run of another job is in the way."""
    return isinstance(answer, Busy) and not answer.own


def lie_down(store: Store, request: Claim, execution: Execution, shut: ClaimResult) -> ClaimResult:
    """Stand in the line, unless the gate has opened since ``shut``; then claim again. The last answer.

    A release between the refused claim and this step has woken nobody: hence the question in the same step.
    """
    try:
        sleep = _sleep(store, request, execution)
        for tries_left in reversed(range(TRIES)):
            if sleep is None or not is_shut(shut):
                break
            # The last time whatever the gate is: many contend, so there will be a release.
            told = store.asleep(sleep if tries_left else replace(sleep, gate=0))
            if not isinstance(told, Open):
                break
            shut = store.claim(replace(request, counted=False))
    except Exception as error:
        let_pass(error)
        signals.report("sleeping", error)
    return shut


def _sleep(store: Store, request: Claim, execution: Execution) -> Sleep | None:
    """What to tell the store; None for a call that cannot be kept: it sleeps without a place in the line."""
    header, app = execution.header, execution.task_object.app
    life = min(longest_sleep(app), _time_left(execution.task_object.request.expires))
    if execution.eager or life <= 0:
        return None
    call = None
    if durable(header.knobs.store) is None:
        again = delivered(execution, retries=execution.retries)
        try:
            call = stored(with_header(again, header), largest=LARGEST)
        except StoredCallError:
            return None
    return Sleep(request.ref, request.id, request.n, request.gate, call, life, header.woken)


def _time_left(expires: Any) -> float:
    """Return how long a delivery may still start, seconds: whoever is woken later ends, and wakes nobody."""
    moment = maybe_iso8601(expires)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return math.inf
    return (moment - datetime.now(UTC)).total_seconds()
