"""Taken at dispatch, freed just before the body starts: at most one waits, any number run."""

from __future__ import annotations

from typing import Final

from django_jobdedup.lock_types.base import LockType

UNTIL_EXECUTING: Final = LockType(
    name="until_executing",
    counts="PW",
    gated=False,
    keeps=False,
    at_dispatch=True,
    conflicts=("dispatch",),
)
