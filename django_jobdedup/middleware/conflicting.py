"""Conflicting: a start met another run, and the strategy of its message is asked.

The strategy has travelled in the header. One that this worker cannot make, or that fails, puts the start
off: a failure here never drops a job.
"""

from __future__ import annotations

import logging
import math
import sys
from typing import Any, Final

from django_jobdedup import signals
from django_jobdedup.call import Execution
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware.out_of_time import let_pass
from django_jobdedup.outcomes import Block, Dead, Decision, PutOff, Refuse, Suppress
from django_jobdedup.stores.results import Busy
from django_jobdedup.strategies.base import Conflict, Strategy
from django_jobdedup.strategies.registry import strategy
from django_jobdedup.strategies.reschedule import Reschedule

logger = logging.getLogger("django_jobdedup")

#: Strategies that this process could not make, so that it says so once. Bounded: headers come from outside.
_KEPT: Final = 1000
_unknown: Final[set[str]] = set()


def decision_at_start(execution: Execution, busy: Busy) -> Decision:
    """Return what becomes of a start that met another job's run."""
    header = execution.header
    conflict = Conflict(
        side="execution",
        holder_id=task_id_of(busy.by),
        state="R",
        retry_in=busy.retry_in,
        put_offs=header.put_offs,
        fingerprint=header.fingerprint,
        task=execution.task,
    )
    try:
        return checked(_made(header.knobs.execution).decide(conflict))
    except Exception as error:
        let_pass(error)
        signals.report("strategy", error)
        return Reschedule().decide(conflict)


def checked(decision: object) -> Decision:
    """Return the decision; a strategy of one's own may have answered anything. Raises TypeError."""
    if not isinstance(decision, Block):
        return _once(decision)
    _check_seconds("seconds", decision.seconds)
    if isinstance(decision.then, Block):
        raise TypeError(f"a strategy decided {decision!r}, to wait twice; let it wait once, for longer")
    _once(decision.then)
    return decision


def _once(decision: object) -> Suppress | Refuse | PutOff | Dead:
    if not isinstance(decision, Suppress | Refuse | PutOff | Dead):
        raise TypeError(
            f"a strategy decided {decision!r}; it returns one of Suppress, Refuse, PutOff, Dead and Block "
            "(django_jobdedup.outcomes)"
        )
    if isinstance(decision, PutOff):
        _check_seconds("after", decision.after)
    return decision


def _check_seconds(what: str, value: object) -> None:
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise TypeError(f"a strategy decided {what}={value!r}; write a number of seconds, from 0 on")


def _check_known(encoded: Any) -> None:
    """Refuse a class in a module that this process has not imported: a header must not run code.

    Raises PolicyError.
    """
    name = encoded[0] if isinstance(encoded, list | tuple) and encoded else encoded
    module = name.rpartition(".")[0] if isinstance(name, str) else ""
    if module and module not in sys.modules:
        raise PolicyError(
            f"Nothing here has imported {module}, where {name!r} would be; import it beside the task."
        )


def _made(encoded: Any) -> Strategy:
    """The strategy that the sender has written; one that this worker cannot make puts the start off."""
    try:
        _check_known(encoded)
        return strategy(encoded)
    except PolicyError as error:
        said = str(error)
        if said not in _unknown:
            if len(_unknown) >= _KEPT:
                _unknown.clear()
            _unknown.add(said)
            logger.error(
                "a start is put off, because this worker cannot make the strategy of its message: %s",
                said,
                extra={"action": "strategy_unknown"},
            )
        return Reschedule()
