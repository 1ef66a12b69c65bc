"""Durations in a policy: a number of seconds or a ``timedelta``."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django_jobdedup.conf import seconds

#: A number of seconds or a ``timedelta``.
Duration = float | timedelta

#: The longest duration, in seconds: ten years. Beyond lie overflows in Redis and in ``datetime``.
LONGEST: Final = 10 * 365 * 86_400.0


def duration(value: object) -> float:
    """Turn a duration of a policy into seconds. Raises ValueError with the end of a sentence."""
    try:
        found = seconds(value)
    except OverflowError:  # a whole number that no float holds
        found = float("inf")
    if found > LONGEST:
        raise ValueError(f"needs at most ten years ({LONGEST:.0f} seconds), not {value!r}")
    return found
