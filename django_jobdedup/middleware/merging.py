"""Merging: a call joins the job that waits, which then runs with this call's arguments.

The whole call is stored beside the waiting seat, so that whoever finds that the job's message is gone can
publish it again. It lives there until the run ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from django_jobdedup.call import Call, Execution
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
from django_jobdedup.stored_call.codec import LARGEST, decode
from django_jobdedup.stores.results import Claimed, Merged

#: Largest call that is stored in the memory of a Redis, bytes.
LARGEST_IN_MEMORY: Final = 256 * 1024


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

    A copy is asked for when that job's message is overdue, or comes later than this call may start. A call
    that somebody waits for is published besides.
    """
    fingerprint, waiting = header.fingerprint, task_id_of(merged.id)
    if call.promised and not is_repeated(call, merged.id):
        # Where a copy of that job is asked for nobody may be there to follow: this one runs.
        return by_itself(call, header) if merged.publish else keep_promise(call, header, merged.id)
    if not merged.publish:
        return Verdict(call, Outcome.RERUN, False, None, waiting, fingerprint)
    copy = header_of_copy(header, merged.id, merged.n, merged.ahead)
    seat = Seat(copy.knobs.store, copy.shard, fingerprint, copy.token)
    going = with_header(replace(call, id=waiting, life=copy.life), copy, reserved=True)
    return Verdict(going, Outcome.RERUN, True, seat, "", fingerprint)


def newest(execution: Execution, claimed: Claimed | None) -> Execution:
    """Return the execution with the newest arguments of the calls that were merged into it.

    Raises StoredCallError for a stored call that this worker cannot read: the job then fails, and does not
    run with arguments that somebody has replaced.
    """
    if claimed is None or not claimed.args:
        return execution
    call, _ = decode(claimed.args, accept=accepted_by(app_of(execution)))
    return replace(execution, args=call.args, kwargs=call.kwargs)
