"""Lost runs: whoever waits for the result of one is told.

With early ack the message of a run that vanished is gone, so nobody will ever store a result under its
id. The reaper stores `JobLost`. It reads the lost runs in the store's events, because any verb may have
swept them, a dispatch most of all.
"""

from __future__ import annotations

import time
from typing import Any, Final

from celery import current_app, states
from celery.backends.base import DisabledBackend

from django_jobdedup import signals
from django_jobdedup.conf import conf
from django_jobdedup.exceptions import JobLost
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware.observing import PREFIX
from django_jobdedup.recovery.duty import UNAVAILABLE, Stop, Tally
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.record import Marker
from django_jobdedup.stores.results import Event, Unavailable

#: Events in one step.
BATCH: Final = 500


class Readers:
    """How far this process has read the events of each shard.

    A new process begins with those of ``JOBDEDUP_GRACE``: to answer twice does no harm.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._read: dict[tuple[str, int], str] = {}

    def read(self, store: Store, shard: int, stop: Stop) -> Tally:
        """Answer the waiters of every lost run that is new; what could not be asked is read again."""
        tally, place = Tally(), (store.alias, shard)
        while not stop():
            events = store.events(shard, self._read.get(place, ""), BATCH)
            if isinstance(events, Unavailable):
                tally[UNAVAILABLE] += 1
                break
            for event in events:
                if _is_news(event) and not _answer(store, event, tally):
                    return tally
                self._read[place] = event.key
            if len(events) < BATCH:
                break
        return tally


readers: Final = Readers()


def _is_news(event: Event) -> bool:
    """Whether this is a lost run that nobody may have told of; a database keeps events for weeks."""
    return event.what == "lost" and event.at > time.time() - conf.GRACE


def _answer(store: Store, event: Event, tally: Tally) -> bool:
    """Store the loss as the result, if nobody else can; False when that could not be found out."""
    going_on = _goes_on(store, event)
    if going_on is None:
        tally[UNAVAILABLE] += 1
        return False
    if going_on or not has_waiters(event.name):
        return True
    try:
        tally["answered"] += store_loss(task_id_of(event.id), event.by, _sentence(event.by))
    except Exception as error:  # a result backend that does not answer
        signals.report("recovery.lost_runs", error)
        tally[UNAVAILABLE] += 1
        return False
    return True


def _goes_on(store: Store, event: Event) -> bool | None:
    """Whether the job waits or runs again, or has ended by now; None when the store does not say."""
    record = store.inspect(event.ref, event.id)
    if isinstance(record, Unavailable):
        return None
    if record is None:
        return False
    return _has_ended_since(record.marker, event) or any(holder.id == event.id for holder in record.holders)


def _has_ended_since(marker: Marker | None, event: Event) -> bool:
    """Whether the job came to an end after the loss; an attempt that had ended before says nothing."""
    if marker is None:
        return False
    return marker.final or bool(marker.superseded_by) or marker.n > int(event.other or -1)


def has_waiters(name: str) -> bool:
    """Say whether a result of ours would be kept where others find it, and may be given.

    One that goes to the queue of its caller (``rpc://``) cannot be given by anybody else, and what is only
    observed gets nothing of ours. ``name`` is the lock name, mostly that of the task.
    """
    if name.startswith(PREFIX):
        return False
    backend: Any = current_app.backend
    task = current_app.tasks.get(name)
    ignored = current_app.conf.task_ignore_result if task is None else task.ignore_result
    return not (ignored or isinstance(backend, DisabledBackend) or not type(backend).persistent)


def store_loss(task_id: str, worker: str, sentence: str) -> bool:
    """Store ``JobLost`` under an id that has no result; False if it has one.

    Callbacks are not called and no chord is told: the run may only have been paused. It then stores its own
    result over this one, and would have its callbacks called twice, once for each ending.
    """
    backend: Any = current_app.backend
    if backend.get_state(task_id) in states.READY_STATES:
        return False
    backend.store_result(task_id, JobLost(sentence, task_id, worker), states.FAILURE)
    return True


def _sentence(worker: str) -> str:
    place = f" in {worker}" if worker else ""
    return (
        f"The run{place} vanished without an ending, and with early ack its message was gone: nobody runs "
        "it again. Call it again, or give the task acks_late=True if it may run twice."
    )
