"""The time of a store: microseconds inside, whole milliseconds in a record, seconds outside."""

from __future__ import annotations

import time


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, never less than none."""
    return max(round(seconds * 1000), 0)


class Clock:
    """A clock that can be moved.

    It runs with the system's; given a ``start`` (seconds since the epoch) it stands still, and only
    ``advance`` moves it.
    """

    def __init__(self, start: float | None = None) -> None:
        self._start = start
        self._offset = 0

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``; a negative number moves it back."""
        self._offset += round(seconds * 1_000_000)

    def micros(self) -> int:
        """Return microseconds since the epoch."""
        base = time.time() if self._start is None else self._start
        return round(base * 1_000_000) + self._offset
