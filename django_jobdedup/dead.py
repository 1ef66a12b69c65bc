"""The list of dead jobs: rejected, put off too often, started too often. A person decides about them.

A row lives in the database of its lock's store, or where the model is written. It is there until somebody
sends its job again or deletes it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

from celery.app import app_or_default
from django.db import DatabaseError, router
from django.db.models import F

from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.header import HEADER
from django_jobdedup.middleware.keeping import accepted_by, durable
from django_jobdedup.models.intent import IntentQuerySet, JobIntent, State
from django_jobdedup.policies.resolve import policy_of
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stored_call.codec import decode
from django_jobdedup.strategies.reject import Reject

#: What a job that is sent again does not take with it: its workflow has been told of its end, and a time
#: that was right then is over.
LEFT_BEHIND: Final = ("chord", "group_id", "group_index", "eta", "countdown", "expires")

#: How long the one who sends a dead job again has it for himself, milliseconds.
SENDING: Final = 60_000


def dead_jobs(using: str | None = None) -> IntentQuerySet:
    """Return the rows of all dead jobs in one database, the newest first."""
    return JobIntent.objects.using(_alias(using)).filter(state=State.DEAD).order_by("-ended_at", "-id")


def requeue(pk: int, *, using: str | None = None, app: Any = None) -> Any:
    """Send a dead job again as a new job, under the policy of today, and return its result.

    It gets an id of its own: the old one is closed, and whoever waited for it has been told. The row is
    then ``superseded`` by the new job. Of several who send it at one time, one does. Killed between the two,
    the row stays dead, and may be sent again after a minute. In a transaction of the database that keeps its
    calls the job goes out after the commit.

    Raises LookupError where no such job is dead or somebody sends it just now, StoredCallError for one
    without a readable call, and what a dispatch raises, such as DuplicateDispatch: the row then stays dead.
    """
    rows = JobIntent.objects.using(_alias(using)).filter(pk=pk, state=State.DEAD)
    row = rows.first()
    if row is None:
        raise LookupError(f"There is no dead job {pk}: perhaps somebody has sent it again or deleted it.")
    now = int(time.time() * 1000)
    until = now + SENDING
    if not rows.filter(lease__lt=now).update(lease=until, version=F("version") + 1):
        raise LookupError(f"Dead job {pk} is being sent again by somebody else: look for it in a minute.")
    try:
        result = _send(row, app_or_default(app))
    except BaseException:
        with suppress(DatabaseError):  # of a broken transaction: its end frees the row, or a minute does
            rows.filter(lease=until).update(lease=0)
        raise
    rows.update(
        lease=0,
        state=State.SUPERSEDED,
        reason=f"sent again as {result.id}",
        mark_by=result.id,
        version=F("version") + 1,
    )
    return result


def delete(pk: int, *, using: str | None = None) -> bool:
    """Take a dead job off the list for good; False where no such job is dead.

    A row that still keeps late copies of its id from running loses its call, and goes with its retention.
    """
    rows = JobIntent.objects.using(_alias(using)).filter(pk=pk, state=State.DEAD)
    now = int(time.time() * 1000)
    closed = rows.filter(mark_until__gt=now).update(state=State.SUPERSEDED, reason="deleted", call=None)
    return bool(closed or rows.delete()[0])


def _alias(using: str | None) -> str:
    return using or str(router.db_for_write(JobIntent))


def _send(row: JobIntent, app: Any) -> Any:
    if row.call is None:
        raise StoredCallError(f"Dead job {row.pk} of {row.name} has no stored call: call its task by hand.")
    call, notes = decode(bytes(row.call), accept=accepted_by(app))
    options = {name: value for name, value in call.options.items() if name not in LEFT_BEHIND}
    options["headers"] = {k: v for k, v in (options.get("headers") or {}).items() if k != HEADER}
    task = app.tasks.get(call.task)
    if notes.typed and task is not None:
        options["task_type"] = task
    policy = policy_of(call.task, getattr(task, "unique", None))
    if isinstance(policy, Unique) and isinstance(policy.dispatch_strategy, Reject) and not _waits(policy):
        # Refused once more it would be a second row; so it is an error to whoever asked.
        options["unique"] = {"on_conflict": _raising(policy)}
    return app.send_task(call.task, call.args, call.kwargs, **options)


def _waits(policy: Unique) -> bool:
    """Whether this dispatch is decided after a commit, when nobody is left to raise to."""
    store = durable(policy.store)
    return store is not None and store.in_transaction()


def _raising(policy: Unique) -> Any:
    both = len(policy.lock_type.conflicts) > 1
    return {"dispatch": "raise", "execution": policy.execution_strategy} if both else "raise"
