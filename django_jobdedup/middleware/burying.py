"""Burying: a job that is given up becomes a row in the list of dead jobs, wherever its lock lives.

The row holds the whole call, so that a person can look at it and send it again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import replace

from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured
from django.db import IntegrityError, router, transaction

from django_jobdedup import signals
from django_jobdedup.call import Call, Execution
from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.header import Header, task_id_of
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.middleware.delivered import delivered
from django_jobdedup.middleware.keeping import accepted_by, app_of, durable, stored
from django_jobdedup.stored_call.codec import decode
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record
from django_jobdedup.stores.words import storable

logger = logging.getLogger("django_jobdedup")


def bury(call: Call, header: Header, reason: str, by: str = "") -> None:
    """Write the row of a dead job, in the database of its lock's store or of the model.

    ``by`` is the token of the holder that refused the call: its job covers who waits for this one.
    A call that cannot be stored is written without it: it can be seen, not sent again. Raises what the
    database raises.
    """
    store = durable(header.knobs.store)
    reason = storable(reason)
    resolved = store and store.resolve(ref_of(header), header.token, "dead", by=by, reason=reason)
    if store is not None and resolved is None:
        _log(call, reason)
        return
    try:
        body = stored(call)
    except StoredCallError as error:
        body, reason = None, storable(f"{reason} ({error})")
    _write(header, body, reason, by, using=store.using if store is not None else None)
    _log(call, reason)


def _write(header: Header, body: bytes | None, reason: str, by: str, *, using: str | None) -> None:
    try:
        from django_jobdedup.models.intent import JobIntent, State
    except AppRegistryNotReady as error:
        raise ImproperlyConfigured(
            "The list of dead jobs is in the database: call django.setup() first, or refuse without it (the "
            "strategies skip, log, raise)."
        ) from error

    using = using or router.db_for_write(JobIntent)
    now = int(time.time() * 1000)
    row = {
        "shard": header.shard,
        "job_key": _digest(task_id_of(header.token)),
        "token": header.token,
        "name": header.knobs.name,
        "state": State.DEAD,
        "reason": reason,
        "mark_by": by,
        "call": body,
        "created_at": now,
        "ended_at": now,
    }
    rows = JobIntent.objects.using(using)
    place = {"fingerprint": header.fingerprint, "key": _digest(header.token)}
    try:
        # A failure here must not break a transaction of the caller. Nothing is read before the insert: SQLite
        # does not wait for another writer in a transaction that has read before it writes.
        with transaction.atomic(using=using):
            rows.create(**place, **row)
    except IntegrityError:
        if not rows.filter(**place).exists():
            raise


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def bury_execution(execution: Execution, reason: str) -> bool:
    """Write the row of a job that ends at its start; False if that failed, which is logged."""
    try:
        bury(_call_of(execution), execution.header, reason)
    except Exception as error:
        signals.report("burying", error)
        return False
    return True


def _call_of(execution: Execution) -> Call:
    """The call that would publish this message again, with the newest arguments."""
    newest = _stored(execution)
    if newest is not None and newest.id == execution.id:
        return newest
    call = delivered(execution, retries=0)
    return call if newest is None else replace(call, args=newest.args, kwargs=newest.kwargs)


def _stored(execution: Execution) -> Call | None:
    """The stored call of this job, with the newest arguments of those that have joined it: they die with it.

    Of another id: a call that has joined it stands in for it, and only its arguments are of use.
    """
    header = execution.header
    if header.knobs.on_waiting != "merge":
        return None
    record = stores[header.knobs.store].inspect(ref_of(header))
    holders = record.holders if isinstance(record, Record) else ()
    for holder in holders:
        if holder.id == header.token and holder.args:
            call, _ = decode(holder.args, accept=accepted_by(app_of(execution)))
            return replace(call, task_object=execution.task_object)
    return None


def _log(call: Call, reason: str) -> None:
    logger.error(
        "%s[%s] is dead: %s",
        call.task,
        call.id,
        reason,
        extra={"action": "dead", "task": call.task, "task_id": call.id},
    )
