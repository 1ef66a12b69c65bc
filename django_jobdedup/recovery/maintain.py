"""Maintenance: the duties, each at its own pace; any number of processes may do them at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django_jobdedup import signals
from django_jobdedup.recovery.duty import UNAVAILABLE, Duty, Stop, Tally, never
from django_jobdedup.recovery.history import drain
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.recovery.relay import relay
from django_jobdedup.recovery.retention import prune

#: In the order in which they are done: what waits for a publish comes first.
DUTIES: Final = (
    Duty("relay", 1.0, relay),
    Duty("reap", 10.0, reap),
    Duty("history", 10.0, drain.run),
    Duty("retention", 600.0, prune),
)
NAMES: Final = tuple(duty.name for duty in DUTIES)


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one duty; ``error`` is the text of what stopped it, empty if nothing did."""

    duty: str
    tally: Tally = field(default_factory=Tally)
    error: str = ""

    @property
    def well(self) -> bool:
        """Say whether it could do all of its work."""
        return not self.error and not self.tally[UNAVAILABLE]

    def as_json(self) -> dict[str, Any]:
        """Return the form for machines."""
        return {"duty": self.duty, **self.tally, **({"error": self.error} if self.error else {})}


class Maintenance:
    """Does duties when they are due in this process; ``clock`` is monotonic seconds."""

    def __init__(self, duties: Sequence[Duty] = DUTIES, clock: Callable[[], float] = time.monotonic) -> None:
        self._duties = duties
        self._clock = clock
        self._due: dict[str, float] = {}

    def run(self, stop: Stop = never, only: Collection[str] = ()) -> list[Done]:
        """Do every duty that is due, or those of ``only``; one that fails keeps no other from its turn."""
        done = []
        for duty in self._chosen(only):
            if stop():
                break
            if self._due.get(duty.name, 0.0) <= self._clock():
                done.append(_do(duty, stop))
                self._due[duty.name] = self._clock() + duty.every
        return done

    def idle(self, only: Collection[str] = ()) -> float:
        """Return the seconds until the next duty is due."""
        due = [self._due.get(duty.name, 0.0) for duty in self._chosen(only)]
        return max(0.0, min(due) - self._clock())

    def _chosen(self, only: Collection[str]) -> list[Duty]:
        return [duty for duty in self._duties if not only or duty.name in only]


def _do(duty: Duty, stop: Stop) -> Done:
    try:
        return Done(duty.name, duty.work(stop))
    except Exception as error:
        signals.report(f"maintain.{duty.name}", error)
        return Done(duty.name, error=f"{type(error).__name__}: {error}")


#: The pace of this process.
maintenance: Final = Maintenance()
