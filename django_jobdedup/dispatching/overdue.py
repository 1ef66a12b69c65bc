"""Overdue: a waiting job whose message is gone, or never came, is published again from its stored call."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from celery.app import app_or_default

from django_jobdedup.dispatching.broker import publish
from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.header import HEADER, Header, life_of, task_id_of
from django_jobdedup.middleware.keeping import accepted_by
from django_jobdedup.middleware.planning import with_header
from django_jobdedup.stored_call.codec import decode
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.results import Overdue


def publish_overdue(store: Store, overdue: Overdue, app: Any = None) -> None:
    """Publish the newest call of a waiting job under that job's id, and tell the store.

    Raises StoredCallError for a call that cannot be read, and what the broker raises: the store reports the
    job again after a while, to whoever asks next.
    """
    app = app_or_default(app)
    call, notes = decode(overdue.args, accept=accepted_by(app))
    header = Header.decode((call.options.get("headers") or {}).get(HEADER))
    if header is None or not header.locks:
        raise StoredCallError(f"The stored call {call.id} of {call.task} has no header of ours.")
    id = task_id_of(overdue.id)
    header = replace(header, id=id, life=life_of(overdue.id), n=overdue.n, put_offs=0, at=time.time())
    task = app.tasks.get(call.task)
    options = {**call.options, "task_type": task} if notes.typed and task is not None else call.options
    publish(app, with_header(replace(call, id=id, options=options), header))
    store.confirm([(overdue.ref, overdue.id)])
