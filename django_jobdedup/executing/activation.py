"""Wake the worker's side up, in workers only.

Every Django process runs this; only ``worker_init`` loads the rest, so a web process imports nothing
of Celery's worker. At ``worker_init`` all task modules are imported and no tracer is built yet.
"""

from __future__ import annotations

from typing import Any

from celery.signals import worker_init, worker_process_shutdown

from django_jobdedup.stores.leaving import make_calls


def connect() -> None:
    """Listen for the start of a worker and the end of its pool's processes; safe to call again."""
    worker_init.connect(_on_worker_init, weak=False, dispatch_uid="jobdedup.worker_init")
    worker_process_shutdown.connect(make_calls, weak=False, dispatch_uid="jobdedup.leaving")


def _on_worker_init(sender: Any, **_: Any) -> None:
    from celery.apps.worker import Worker

    from django_jobdedup.executing import worker

    worker.activate(sender.app, embedded=not isinstance(sender, Worker))
