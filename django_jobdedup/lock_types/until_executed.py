"""Taken at dispatch, freed at the final end, kept through retries; on a lease while the body runs.

A start that meets another live run (its own lock had lapsed) is put off: the gate is closed.
"""

from __future__ import annotations

from typing import Final

from django_jobdedup.lock_types.base import LockType

UNTIL_EXECUTED: Final = LockType(
    name="until_executed",
    counts="PWR",
    gated=True,
    keeps=False,
    at_dispatch=True,
    conflicts=("dispatch",),
)
