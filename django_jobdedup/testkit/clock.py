"""The clock of the locks in a test."""

from __future__ import annotations

from datetime import timedelta

from django_jobdedup.stores.clock import Clock


class MovableClock(Clock):
    """Runs with the system's clock, and jumps when it is told to. Moves the locks' time, nothing else."""

    def advance(
        self, seconds: float | timedelta = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Move on by a number of seconds, a ``timedelta`` or larger units, added up.

        Raises ValueError for a step backwards, TypeError for what is no time.
        """
        if not isinstance(seconds, int | float | timedelta):
            raise TypeError(f"advance() takes a number of seconds or a timedelta, not {seconds!r}.")
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        step = seconds + timedelta(days=days, hours=hours, minutes=minutes).total_seconds()
        if step < 0:
            raise ValueError(f"advance({step:g}) would go back: the clock of a store never does.")
        super().advance(step)
