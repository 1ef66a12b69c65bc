"""Taken at the start of the body, freed at its end: every call is queued, no two run at a time."""

from __future__ import annotations

from typing import Final

from django_jobdedup.lock_types.base import LockType

WHILE_EXECUTING: Final = LockType(
    name="while_executing",
    counts="",
    gated=True,
    keeps=False,
    at_dispatch=False,
    conflicts=("execution",),
)
