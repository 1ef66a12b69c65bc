"""Observing: nothing is refused, put off or held back, but what would have been is counted.

An observed call asks for seats in a record of its own beside the real one, under another fingerprint and
another lock name. So a process that enforces never meets its holders, and none of them is left in the way
when observing ends.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from typing import Final

from django_jobdedup.call import Call, Execution
from django_jobdedup.conf import conf
from django_jobdedup.header import Header, Knobs, task_id_of
from django_jobdedup.outcomes import Block, Dead, Decision, Outcome, PutOff, Refuse
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.results import Busy, ClaimResult, Done, Superseded

logger = logging.getLogger("django_jobdedup")

#: Beginning of the lock name under which the store counts what was observed.
PREFIX: Final = "observe:"


def is_observed(policy: Unique) -> bool:
    """Say whether calls under this policy are only watched."""
    return bool(policy.observe or conf.MODE == "observe")


def fingerprint_beside(fingerprint: str) -> str:
    """Return the fingerprint of the record in which observed calls take their seats."""
    return hashlib.sha256(f"{PREFIX}{fingerprint}".encode()).hexdigest()


def knobs_beside(knobs: Knobs) -> Knobs:
    """Return the knobs of an observed call: counted as it would be, and changing nothing for others."""
    return replace(
        knobs,
        name=PREFIX + knobs.name,
        observe=True,
        on_waiting="keep",
        max_starts=0,
        on_store_error="proceed",
    )


def would_at_dispatch(call: Call, state: str, decision: Decision | None) -> str:
    """Return the word for what a call that met a holder would have become; empty for nothing else.

    ``decision`` is that of its strategy, None where somebody waits for this very id or it has failed.
    """
    assert isinstance(call.policy, Unique)  # noqa: S101 - only such calls are observed
    on_waiting = call.policy.dispatch_strategy.on_waiting
    if decision is None:
        return ""
    if state in "PW" and on_waiting == "merge":
        return "rerun"
    if state in "PW" and on_waiting == "over":
        return "replace"
    if isinstance(decision, PutOff | Block):
        return "reschedule"
    if isinstance(decision, Dead):
        return "reject"
    return "raise" if isinstance(decision, Refuse) else "suppress"


def runs_anyway(header: Header, answer: ClaimResult) -> bool:
    """Say whether a start that was refused its seat runs all the same.

    A message that an enforcing process has sent may be a copy of a job that has run: that was decided there.
    """
    if header.knobs.observe:
        return True
    return conf.MODE == "observe" and not isinstance(answer, Done | Superseded)


def log_call(call: Call, would: str, holder_id: str) -> None:
    """Say what a call would have become."""
    logger.info(
        "observed: %s[%s] would have met job %s (%s)",
        call.task,
        call.id,
        task_id_of(holder_id),
        would,
        extra={"action": "would", "task": call.task, "task_id": call.id, "would": would},
    )


def log_start(execution: Execution, answer: ClaimResult) -> None:
    """Say what a start would have become."""
    by = task_id_of(answer.by) if isinstance(answer, Busy) else ""
    logger.info(
        "observed: %s[%s] would not have started now (%s %s)",
        execution.task,
        execution.id,
        type(answer).__name__.lower(),
        by,
        extra={"action": "would_wait", "task": execution.task, "task_id": execution.id, "holder_id": by},
    )


def outcome_of_seat(header: Header) -> Outcome:
    """Return the outcome of a call that has a seat."""
    return Outcome.OBSERVED if header.locks and header.knobs.observe else Outcome.ACCEPTED
