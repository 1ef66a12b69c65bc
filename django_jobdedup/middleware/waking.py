"""Waking: the message of the oldest waiter sleeps, so a release publishes its stored call at once.

The store keeps that call beside a waiting seat (``rerun``) or in the line of a lock (``sleeping.py``). It is
one more message of the same id: whichever comes first is claimed, and if the gate is shut again the woken one
ends while the other sleeps. If it cannot be published, the sleeping one comes by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from django_jobdedup import signals
from django_jobdedup.call import untouched
from django_jobdedup.header import HEADER, Header, task_id_of
from django_jobdedup.middleware.apps import app_of_stored
from django_jobdedup.middleware.keeping import accepted_by
from django_jobdedup.middleware.planning import header_of_copy, with_header
from django_jobdedup.stored_call.codec import decode
from django_jobdedup.stores.results import Overdue

#: For a connection that broke since its last use. A body has just ended: it must not wait for a broker that
#: is down, for a message that only saves time.
ONCE_MORE: Final[dict[str, Any]] = {
    "retry": True,
    "retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0},
}


def wake(waiter: Overdue) -> None:
    """Publish the call of a waiting job under its id; never raises."""
    try:
        app = app_of_stored(waiter.args)
        call, notes = decode(waiter.args, accept=accepted_by(app))
        header = Header.decode((call.options.get("headers") or {}).get(HEADER))
        id = task_id_of(waiter.id)
        # Of another id: lent by one that has joined it. The message that sleeps has the job's own options.
        if header is None or not header.locks or call.id != id:
            return
        going = with_header(replace(call, id=id), header_of_copy(header, waiter.id, waiter.n, woken=True))
        task = app.tasks.get(call.task) if notes.typed else None
        options = {name: value for name, value in going.options.items() if name not in ("eta", "countdown")}
        with untouched():
            app.send_task(
                call.task,
                call.args,
                dict(call.kwargs),
                task_id=id,
                task_type=task,
                **{**options, "add_to_parent": False, **ONCE_MORE},
            )
    except Exception as error:
        signals.report("waking", error)
