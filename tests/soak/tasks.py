"""The tasks of the soak, one a kind. Workers import this module, and say in a file when they are ready."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from celery import Task, shared_task, signals
from django.conf import settings

from tests.jobs.tasks import JobError

from . import popping
from .kinds import KINDS, Kind
from .pen import GOT, Pen, recorded

MODULE: Final = __name__
RETRY_AFTER: Final = 0.2
"""Seconds."""
RETURN, FAIL, RETRY = "return", "fail", "retry"


def job(kind: Kind) -> Any:
    """Make the task of a kind: with late ack whatever is lost comes again, with early ack it is told."""

    @shared_task(
        bind=True,
        name=kind.task,
        unique=kind.policy,
        acks_late=kind.late,
        reject_on_worker_lost=kind.late,
        ignore_result=kind.late,
    )
    def body(self: Task, key: str, stamp: int, how: str, seconds: float) -> None:
        with recorded(settings.SOAK_JOURNAL, self.request, kind.name, key, stamp) as pen:
            pen.work(seconds)
            if how == FAIL:
                raise JobError(key)
            if how == RETRY and not self.request.retries:
                raise self.retry(countdown=RETRY_AFTER)

    return body


TASKS: Final = {kind.name: job(kind) for kind in KINDS}


@signals.worker_init.connect(weak=False)
def pop_safely(**_: Any) -> None:
    """Lose no message by a kill."""
    popping.install()


@signals.task_received.connect(weak=False)
def note_received(request: Any, **_: Any) -> None:
    """Write down which worker has got a message."""
    Pen(settings.SOAK_JOURNAL).write(GOT, request.id, request.hostname)


@signals.worker_ready.connect(weak=False)
def say_ready(sender: Any, **_: Any) -> None:
    """Leave an empty file with the name of the worker."""
    if folder := getattr(settings, "SOAK_READY", ""):
        Path(folder, sender.hostname).touch()
