"""Merging: a call joins the job that waits, which then runs with this call's arguments.

The whole call of that job is stored beside its waiting seat, so that whoever finds that its message is gone,
asleep or late can publish it again. A call that joins replaces the arguments in it and nothing else: queue,
expiry, chain and callbacks are those of the accepted job. It lives there until the run ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from django_jobdedup.call import HANGING, Call, Execution
from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.header import Header, task_id_of
from django_jobdedup.middleware import mistake
from django_jobdedup.middleware.base import Seat
from django_jobdedup.middleware.keeping import accepted_by, app_of, durable, stored
from django_jobdedup.middleware.planning import Plan, header_of_copy, with_header
from django_jobdedup.middleware.promising import by_itself, keep_promise
from django_jobdedup.middleware.refusing import is_repeated
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stored_call.codec import LARGEST, arguments_of, decode
from django_jobdedup.stores.results import Claimed, Merged

#: Largest call that is stored in the memory of a Redis, bytes.
LARGEST_IN_MEMORY: Final = 256 * 1024
#: What a call does not lend to the job that it joins: its own workflow, and the end of its own patience.
NOT_LENT: Final = frozenset((*HANGING, "group_index", "expires"))


def with_arguments(item: Plan) -> Plan:
    """Return the plan whose request carries the whole call, where its policy merges.

    Raises StoredCallError before anything is written, but not for a publish that Celery makes itself: a new
    one goes out without a lock, a retry with what its own message says.
    """
    request, header = item.request, item.header
    if request is None or header is None or request.on_waiting != "merge":
        return item
    largest = LARGEST if durable(header.knobs.store) else LARGEST_IN_MEMORY
    try:
        args = stored(with_header(item.call, header), largest=largest)
    except StoredCallError as error:
        if item.call.again is None and not item.call.by_celery:
            raise
        mistake.report("merging", item.call.task, error)
        if item.call.again is None:
            return replace(item, outcome=Outcome.UNPROTECTED, request=None)
        args = b""  # nothing newer than the message itself
    return replace(item, request=replace(request, args=args))


def join(call: Call, header: Header, merged: Merged) -> Verdict:
    """Return what a merged call becomes: nothing of its own, or a copy of the job that waits.

    A copy is asked for when that job's message is overdue, or comes later than this call may start: it is
    that job's own call, with these arguments. A call that somebody waits for is published besides.
    """
    fingerprint, waiting = header.fingerprint, task_id_of(merged.id)
    if call.promised and not is_repeated(call, merged.id):
        # Where a copy of that job is asked for nobody may be there to follow: this one runs.
        return by_itself(call, header) if merged.publish else keep_promise(call, header, merged.id)
    again = _again(call, merged) if merged.publish else None
    if again is None:
        return Verdict(call, Outcome.RERUN, False, None, waiting, fingerprint)
    copy = header_of_copy(header, merged.id, merged.n, merged.ahead)
    seat = Seat(copy.knobs.store, copy.shard, fingerprint, copy.token)
    going = with_header(replace(again, life=copy.life), copy, reserved=True)
    return Verdict(going, Outcome.RERUN, True, seat, "", fingerprint)


def _again(call: Call, merged: Merged) -> Call | None:
    """The message of the waiting job once more, due when the store says; None: none can be made here."""
    waiting, app = task_id_of(merged.id), app_of(call)
    try:
        own, notes = decode(merged.call, accept=accepted_by(app))
    except StoredCallError as error:  # what was stored stays: the reaper tries again, and says what is wrong
        mistake.report("merging", call.task, error)
        return None
    if own.id != waiting:
        # Nothing is stored of that job but what calls have lent it, so its own message has to come.
        return replace(call, id=waiting, options=lent(call.options)) if not merged.ahead else None
    task = app.tasks.get(own.task)
    options = {name: value for name, value in own.options.items() if name not in ("eta", "countdown")}
    if merged.due_in:
        options["countdown"] = merged.due_in
    if notes.typed and task is not None:
        options["task_type"] = task
    return replace(
        call, id=waiting, task=own.task, task_object=task, args=own.args, kwargs=own.kwargs, options=options,
        due_in=merged.due_in, promised=own.promised,
    )  # fmt: skip


def lent(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with which a call stands in for the job that it has joined."""
    return {name: value for name, value in options.items() if name not in NOT_LENT}


def newest(execution: Execution, claimed: Claimed | None) -> Execution:
    """Return the execution with the newest arguments of the calls that were merged into it.

    Raises StoredCallError for a stored call that this worker cannot read: the job then fails, and does not
    run with arguments that somebody has replaced.
    """
    if claimed is None or not claimed.args:
        return execution
    args, kwargs = arguments_of(claimed.args, accept=accepted_by(app_of(execution)))
    return replace(execution, args=args, kwargs=kwargs)
