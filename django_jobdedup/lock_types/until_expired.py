"""Taken at dispatch, freed by the TTL alone, also after a good end; freed at once by a failure.

``keep_on_failure`` keeps it after a failure too. A start that meets another live run is put off.
"""

from __future__ import annotations

from typing import Final

from django_jobdedup.lock_types.base import LockType

UNTIL_EXPIRED: Final = LockType(
    name="until_expired",
    counts="PWRK",
    gated=True,
    keeps=True,
    at_dispatch=True,
    conflicts=("dispatch",),
)
