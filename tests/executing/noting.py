"""Receivers in a worker: they note what they hear in a Redis list. Workers import this module."""

from __future__ import annotations

import json
import os
from typing import Any

from django.conf import settings

from django_jobdedup import signals
from tests.rig.journal import writer

MODULE = __name__


def note(signal: str, sender: Any, **values: Any) -> None:
    """Append one line."""
    line = {"signal": signal, "sender": getattr(sender, "name", None), "pid": os.getpid(), **values}
    key = f"{settings.TEST_NAMESPACE}:signals"
    writer(settings.JOURNAL_URL, os.getpid()).rpush(key, json.dumps(line))


def on_execution(sender: Any, execution: Any, decision: Any, by: str, **_: Any) -> None:
    """Note a decision."""
    note("execution_decided", sender, id=execution.id, decision=decision.value, by=by, task=execution.task)


def on_released(sender: Any, ending: Any, **_: Any) -> None:
    """Note a release."""
    note("lock_released", sender, id=ending.id, reason=ending.reason, task=ending.task)


def on_lost(sender: Any, id: str, fingerprint: str, **_: Any) -> None:
    """Note a lost lock."""
    note("lock_lost", sender, id=id)


def on_unavailable(sender: Any, store: str, verb: str, error: str, **_: Any) -> None:
    """Note a store that does not answer."""
    note("store_unavailable", sender, store=store, verb=verb)


def fail(sender: Any, **_: Any) -> None:
    """Raise, as a receiver of a user may."""
    raise RuntimeError("a receiver of the user")


if os.environ.get("TEST_NOTING"):
    signals.execution_decided.connect(fail, weak=False)
    signals.lock_released.connect(fail, weak=False)
    signals.lock_lost.connect(fail, weak=False)
    signals.execution_decided.connect(on_execution, weak=False)
    signals.lock_released.connect(on_released, weak=False)
    signals.lock_lost.connect(on_lost, weak=False)
    signals.store_unavailable.connect(on_unavailable, weak=False)
