"""Celery's worker signals, each joined to what the app does then."""

from __future__ import annotations

import os
from typing import Any, Final

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery import signals as celery_signals
from celery.worker import state

from django_jobdedup import signals
from django_jobdedup.call import Ending
from django_jobdedup.executing import revoked, unheard, unread
from django_jobdedup.executing.endings import is_back_at_timeout, unseen
from django_jobdedup.executing.lease import Dying, keeper
from django_jobdedup.executing.pool import pool
from django_jobdedup.executing.presence import presence
from django_jobdedup.executing.reception import Delivery, receive
from django_jobdedup.executing.requests import remember, requests_of
from django_jobdedup.executing.startup import check_startup
from django_jobdedup.executing.wrapper import wrap_tasks
from django_jobdedup.header import HEADER, NONCE, Header
from django_jobdedup.middleware import stack


class MainProcess:
    """True in the worker's main process, False in the pool processes that it forks."""

    def __init__(self) -> None:
        self._pid = 0

    def is_here(self) -> None:
        """Note that this process is the main one."""
        self._pid = os.getpid()

    def __bool__(self) -> bool:
        return self._pid == os.getpid()


_main: Final = MainProcess()
#: What Celery says when a body ended with its process; SystemExit before 5.7.
LOST: Final = (WorkerLostError, TimeLimitExceeded, Terminated, SystemExit)


def connect() -> None:
    """Connect all receivers; safe to call again."""
    for name, receiver in {
        "worker_ready": on_ready,
        "task_received": on_received,
        "task_revoked": on_revoked,
        "task_failure": on_failure,
        "task_rejected": unread.on_rejected,
        "task_unknown": unread.on_unknown,
    }.items():
        getattr(celery_signals, name).connect(receiver, weak=False, dispatch_uid=f"jobdedup.{name}")


def activate(app: Any, *, embedded: bool = False) -> None:
    """Make this process a worker's main process: wrap the tasks, listen to what happens to them.

    ``embedded``: it is the process of a test, which runs the worker in a thread.

    Raises SystemExit for settings or policies that cannot work: Celery's signals let nothing else through.
    """
    _main.is_here()
    check_startup(app, embedded=embedded)
    wrap_tasks(app)
    connect()
    unread.install()
    unheard.install()
    revoked.install()


def on_ready(sender: Any, **_: Any) -> None:
    """Say that this worker's queues are attended, and start to keep leases."""
    keeper.start()
    presence.announce(sender.app.amqp.queues.consume_from)


def on_received(sender: Any, request: Any, **_: Any) -> None:
    """Give the delivery its nonce."""
    pool.is_of(sender)
    try:
        delivery = receive(request)
    except Exception as error:
        signals.report("worker.on_received", error)
        raise
    if delivery is not None:
        remember(request, delivery)
        keeper.start()  # a worker embedded in a test says nowhere that it is ready
        keeper.look_after(delivery)


def on_revoked(sender: Any, request: Any, terminated: bool = False, **_: Any) -> None:
    """Free the seat of a terminated job when its process is gone; one that did not run has ended before."""
    header = Header.decode(request.get(HEADER))
    if not terminated or header is None or not header.locks or header.id != request.id:
        return  # or it travels with a message of somebody else
    ending = unseen(sender.app, sender.name, header, "terminated", nonce=request.get(NONCE) or "")
    found = _find(header.id, ending.nonce)
    if found is None or not found[1].ending:
        _when_gone(ending, found)


def on_failure(sender: Any, task_id: str, exception: Any = None, **_: Any) -> None:
    """Free the seat of a job whose process was lost or hit its hard time limit.

    Celery sends the same signal in the pool's process for plain failures: there the body's own end has
    done it all. The hard limit sends it twice, and before the process is gone.
    """
    if not _main or not isinstance(exception, LOST):
        return
    if isinstance(exception, TimeLimitExceeded) and is_back_at_timeout(sender):
        return
    reason = "timeout" if isinstance(exception, TimeLimitExceeded) else "lost"
    for request, delivery in requests_of(task_id):
        if request not in state.active_requests and not delivery.ending:
            ending = unseen(sender.app, sender.name, delivery.header, reason, nonce=delivery.nonce)
            _when_gone(ending, (request, delivery))


def _find(task_id: str, nonce: str) -> tuple[Any, Delivery] | None:
    return next((found for found in requests_of(task_id) if found[1].nonce == nonce), None)


def _when_gone(ending: Ending, found: tuple[Any, Delivery] | None) -> None:
    """End now if no process of the pool runs the body any more, else as soon as it has gone."""
    if found is None:
        stack.ended(ending)
    else:
        request, delivery = found
        keeper.watch(Dying(delivery, ending, request))
