"""Following: the message of a promised duplicate takes the outcome of the job that does the work.

It holds no worker slot while it waits: it looks, and is put off. The store is asked first, because an id
may have a result of an earlier life; only when the job holds nothing any more is its result read.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, replace
from typing import Any, Final

from django_jobdedup.call import Call, Execution
from django_jobdedup.conf import conf
from django_jobdedup.executing import winner
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.middleware.planning import request_for
from django_jobdedup.middleware.promising import has_results
from django_jobdedup.middleware.starting import STORE_DOWN_PAUSE
from django_jobdedup.outcomes import Start, Suppressed
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.results import Acquired, Held, Outside, Unavailable

logger = logging.getLogger("django_jobdedup")

#: Pause after the first look, and how the pauses grow, seconds: short jobs are answered quickly.
FIRST: Final = 0.2
GROWTH: Final = 1.5
#: Longest pause, seconds; for a job that has run for long, that part of its age.
LONGEST: Final = 30.0
PART: Final = 0.1
#: A process looks for the followers of one job at most so often: many of them are slower, seconds.
SPACING: Final = 0.04
#: How long an ended job may owe its result, or a store its answer, seconds.
PATIENCE: Final = 30.0
#: When the stand-in for a job that is gone would be due: later than its heir, seconds.
STAND_IN: Final = 60.0
#: At most so many jobs are followed from one to the next in one look.
HOPS: Final = 10


@dataclass(frozen=True, slots=True)
class Taken:
    """What the delivery ends with, and whose outcome it is: a value, or an error to raise."""

    start: Start
    by: str
    value: Any = None
    error: Exception | None = None

    def give(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True)
class Later:
    """Look again in ``after`` seconds; ``counts``: the next pause is longer."""

    execution: Execution
    by: str
    after: float
    counts: bool = True


def follow(execution: Execution) -> Execution | Taken | Later:
    """Look after the job that this one follows; the execution comes back where its own body has to run."""
    header, task = execution.header, execution.task_object
    if conf.MODE == "observe" or not stack.locks():  # the sender enforces, this worker does not
        return _alone(execution)
    if header.mark:
        return Taken(Start.SUPPRESSED, task_id_of(header.mark))
    if not has_results(task.app, task):
        return _alone(execution)
    for _ in range(HOPS):
        found = _look(execution)
        if not isinstance(found, str):
            return found
        header = replace(execution.header, follow=found, put_offs=0, gone_at=0.0)
        execution = replace(execution, header=header)
    return Later(execution, task_id_of(header.follow), _spread(FIRST))


def _look(execution: Execution) -> Execution | Taken | Later | str:
    """Look once; a text is the token of the job to follow instead."""
    header = execution.header
    crowded = winner.crowd(header) * SPACING
    seen = winner.see(header, fresh=max(_pause(header.put_offs), crowded) * PART)
    if isinstance(seen, winner.Holding):
        return _wait(execution, seen, crowded)
    if isinstance(seen, winner.Superseded):
        return seen.by
    if isinstance(seen, Unavailable):
        return _owed(execution) or _without_store(execution)
    if seen.own:  # it has taken the work over in an earlier delivery
        return _alone(execution)
    by = task_id_of(header.follow)
    outcome = winner.outcome_of(execution.task_object.app, by)
    if isinstance(outcome, winner.Returned):
        return Taken(Start.FOLLOWED, by, outcome.value)
    if isinstance(outcome, winner.Raised):
        return Taken(Start.FOLLOWED, by, error=outcome.error)
    if seen.kept or (seen.ended and outcome is None):
        return _owed(execution) or Taken(Start.SUPPRESSED, by, Suppressed(by))
    return _take_over(execution)


def _wait(execution: Execution, seen: winner.Holding, crowded: float) -> Later:
    """Look again later; not before it may start, if that is known."""
    holder, header = seen.holder, execution.header
    execution = replace(execution, header=replace(header, gone_at=0.0))
    by, due_in = task_id_of(header.follow), holder.due - seen.now
    if holder.state != "R" and due_in > LONGEST:
        return Later(execution, by, due_in + _spread(FIRST), counts=False)
    longest = max(LONGEST, PART * (seen.now - holder.since)) if holder.state == "R" else LONGEST
    pause = max(_pause(header.put_offs, longest), crowded)
    return Later(execution, by, _spread(pause))


def _owed(execution: Execution) -> Later | None:
    """Wait for what must come soon; None after ``PATIENCE``."""
    header, now = execution.header, time.time()
    since = header.gone_at or now
    if now - since > PATIENCE:
        return None
    execution = replace(execution, header=replace(header, gone_at=since))
    after = max(FIRST, (now - since) / 2)
    return Later(execution, task_id_of(header.follow), _spread(after), counts=False)


def _without_store(execution: Execution) -> Execution | Later:
    """Run without a lock if the policy says so; a follower loses nothing by waiting on."""
    if execution.header.knobs.on_store_error == "proceed":
        return _alone(execution)
    return Later(execution, task_id_of(execution.header.follow), _spread(STORE_DOWN_PAUSE), counts=False)


def _take_over(execution: Execution) -> Execution | Later | str:
    """Do the work: the job is gone without an outcome. Of its followers one becomes its heir.

    The heir comes over a stand-in for the job, which leaves the trace by which the others find it, also
    after its end. Dying before that, it leaves a seat that lapses like that of a failed publish.
    """
    header, store = execution.header, stores[execution.header.knobs.store]
    stand_in = winner.stand_in_for(header.follow)
    plain = replace(request_for(Call(execution.task, execution.id), header), on_waiting="keep")
    answer = store.acquire(replace(plain, id=stand_in, due_in=STAND_IN))
    if isinstance(answer, Outside):  # superseded, so there is an heir
        heir = winner.heir_of(store.inspect(ref_of(header), stand_in))
        return heir if heir and heir != header.token else _alone(execution)
    if isinstance(answer, Acquired):
        answer = store.acquire(replace(plain, on_waiting="soonest", received=True, counted=execution.counted))
    if isinstance(answer, Held):
        if answer.id not in (header.follow, stand_in):
            return answer.id
        return Later(execution, task_id_of(answer.id), _spread(_pause(header.put_offs)))
    if isinstance(answer, Unavailable):
        return _owed(execution) or _without_store(execution)
    logger.info(
        "%s[%s] runs after all: job %s, which it followed, is gone without an outcome",
        execution.task,
        execution.id,
        task_id_of(header.follow),
        extra={"action": "taken_over", "task": execution.task, "task_id": execution.id},
    )
    return _alone(execution, answer.at if isinstance(answer, Acquired) else 0.0)


def _alone(execution: Execution, at: float = 0.0) -> Execution:
    """The execution as that of a job that follows nobody."""
    header = execution.header.on_its_own()
    return replace(execution, header=header.accepted(at))


def _pause(looks: int, longest: float = LONGEST) -> float:
    return float(min(FIRST * GROWTH ** min(looks, 40), longest))


def _spread(seconds: float) -> float:
    """So that a thousand followers do not come at once."""
    return seconds * random.uniform(0.75, 1.25)
