"""Holding: a start waits for the gate to open, with its worker slot; bounded, and said in the log."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import replace
from typing import Final

from django_jobdedup.call import Execution
from django_jobdedup.header import task_id_of
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.requests import Claim
from django_jobdedup.stores.results import Busy, ClaimResult

logger = logging.getLogger("django_jobdedup")

#: First and longest pause between two questions, seconds.
FIRST: Final = 0.05
LONGEST: Final = 1.0
#: A wait takes at most this part of the visibility timeout: beyond it the broker multiplies the message.
PART: Final = 3


def hold(store: Store, request: Claim, execution: Execution, seconds: float, busy: Busy) -> ClaimResult:
    """Ask again until another job's run is no longer in the way, for at most ``seconds``; the last answer.

    Each claim shows the same nonce, so a lost reply is asked for again like any other.
    """
    seconds = min(seconds, execution.visibility / PART)
    logger.info(
        "%s[%s] waits for job %s, at most %.3g s, in its worker slot",
        execution.task,
        execution.id,
        task_id_of(busy.by),
        seconds,
        extra={"action": "waiting", "task": execution.task, "task_id": execution.id, "holder_id": busy.by},
    )
    answer: ClaimResult = busy
    again = replace(request, counted=False)
    until, pause = time.monotonic() + seconds, FIRST
    while isinstance(answer, Busy) and not answer.own and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, pause * random.uniform(0.8, 1.2)))
        pause = min(LONGEST, 2 * pause)
        answer = store.claim(again)
    return answer
