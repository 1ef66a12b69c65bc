"""Taken at dispatch and again at start, freed at start and at the end: one waits, one runs."""

from __future__ import annotations

from typing import Final

from django_jobdedup.lock_types.base import LockType

UNTIL_AND_WHILE_EXECUTING: Final = LockType(
    name="until_and_while_executing",
    counts="PW",
    gated=True,
    keeps=False,
    at_dispatch=True,
    conflicts=("dispatch", "execution"),
)
