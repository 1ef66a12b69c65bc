"""Waking: the message of the oldest waiter sleeps, so a release publishes its stored call at once.

Only where the store keeps that call (``rerun``). It is one more message of the same id: whichever comes
first is claimed. If it cannot be published, the sleeping one comes by itself.
"""

from __future__ import annotations

from dataclasses import replace

from celery import current_app

from django_jobdedup import signals
from django_jobdedup.call import untouched
from django_jobdedup.header import HEADER, Header, task_id_of
from django_jobdedup.middleware.keeping import accepted_by
from django_jobdedup.middleware.planning import header_of_copy, with_header
from django_jobdedup.stored_call.codec import decode
from django_jobdedup.stores.results import Overdue


def wake(waiter: Overdue) -> None:
    """Publish the call of a waiting job under its id; never raises."""
    try:
        call, notes = decode(waiter.args, accept=accepted_by(current_app))
        header = Header.decode((call.options.get("headers") or {}).get(HEADER))
        if header is None or not header.locks:
            return
        id = task_id_of(waiter.id)
        going = with_header(replace(call, id=id), header_of_copy(header, waiter.id, waiter.n))
        task = current_app.tasks.get(call.task) if notes.typed else None
        options = {name: value for name, value in going.options.items() if name not in ("eta", "countdown")}
        with untouched():
            current_app.send_task(
                call.task,
                call.args,
                dict(call.kwargs),
                task_id=id,
                task_type=task,
                add_to_parent=False,
                **options,
            )
    except Exception as error:
        signals.report("waking", error)
