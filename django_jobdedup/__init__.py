"""Job deduplication for Django and Celery: equal work is queued once and runs once at a time.

Names are loaded on first use, so importing the package costs nothing and touches no model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_jobdedup.control.lock import Lock, LockHolder
    from django_jobdedup.control.verbs import cancel, peek, release
    from django_jobdedup.dispatching.bulk import dispatch_many
    from django_jobdedup.dispatching.hook import install, uninstall
    from django_jobdedup.dispatching.result import job_of, outcome_of
    from django_jobdedup.exceptions import (
        BulkError,
        DuplicateDispatch,
        FingerprintError,
        JobDead,
        JobDedupError,
        JobLost,
        LockInUse,
        LockLost,
        PolicyError,
        StoredCallError,
        StoreUnavailable,
        TransactionConflict,
        Undecided,
        WinnerFailed,
    )
    from django_jobdedup.executing.current import current_lock
    from django_jobdedup.outcomes import Outcome, Suppressed
    from django_jobdedup.policies.unique import Unique
    from django_jobdedup.strategies.reschedule import Reschedule
    from django_jobdedup.strategies.wait import Wait

__version__ = "0.1.0"

__all__ = [
    "BulkError",
    "DuplicateDispatch",
    "FingerprintError",
    "JobDead",
    "JobDedupError",
    "JobLost",
    "Lock",
    "LockHolder",
    "LockInUse",
    "LockLost",
    "Outcome",
    "PolicyError",
    "Reschedule",
    "StoreUnavailable",
    "StoredCallError",
    "Suppressed",
    "TransactionConflict",
    "Undecided",
    "Unique",
    "Wait",
    "WinnerFailed",
    "cancel",
    "current_lock",
    "dispatch_many",
    "install",
    "job_of",
    "outcome_of",
    "peek",
    "release",
    "uninstall",
]

_HOMES = {
    "Unique": "policies.unique",
    "Reschedule": "strategies.reschedule",
    "Wait": "strategies.wait",
    "Outcome": "outcomes",
    "Suppressed": "outcomes",
    "current_lock": "executing.current",
    "Lock": "control.lock",
    "LockHolder": "control.lock",
    "cancel": "control.verbs",
    "peek": "control.verbs",
    "release": "control.verbs",
    "dispatch_many": "dispatching.bulk",
    "job_of": "dispatching.result",
    "outcome_of": "dispatching.result",
    "install": "dispatching.hook",
    "uninstall": "dispatching.hook",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'django_jobdedup' has no attribute {name!r}")
    return getattr(import_module(f"django_jobdedup.{_HOMES.get(name, 'exceptions')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
