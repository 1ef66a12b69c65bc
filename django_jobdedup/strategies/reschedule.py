"""``reschedule``: published again under the same id, later; holds no worker slot meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, Never

from django_jobdedup.conf import Duration, seconds
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.outcomes import Dead, Decision, PutOff
from django_jobdedup.strategies.base import Conflict, Strategy, check_written

#: A delay is spread by this part of itself to both sides, so that those put off together come back apart.
JITTER: Final = 0.2
#: 2**62 seconds outlast every ``up_to``; without a bound the float would overflow.
_DOUBLINGS: Final = 62


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Reschedule(Strategy):
    """Run the newcomer later.

    The delay is ``after``, doubled at each further conflict, spread by 20 % to both sides, and never
    above ``up_to``; both are seconds or a ``timedelta``. After ``times`` conflicts of one attempt the job
    is dead; None puts it off until it can run.
    """

    name: ClassVar[str] = "reschedule"

    after: float = 5.0
    up_to: float = 300.0
    times: int | None = None

    def __init__(
        self,
        after: Duration = 5.0,
        up_to: Duration = 300.0,
        times: int | None = None,
        *more: Never,
        **unknown: Never,
    ) -> None:
        check_written("Reschedule", ("after", "up_to", "times"), more, unknown)
        for option, value in (("after", after), ("up_to", up_to)):
            object.__setattr__(self, option, _seconds(option, value))
        if self.after > self.up_to:
            raise PolicyError(
                f"Reschedule(after={self.after:g}, up_to={self.up_to:g}): the first delay is above the "
                f"longest. Write up_to={self.after:g} or more."
            )
        if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
            raise PolicyError(
                f"Reschedule option times needs a whole number from 1 on, or None, not {times!r}."
            )
        object.__setattr__(self, "times", times)

    def decide(self, conflict: Conflict) -> Decision:
        """Put off; give up when that has happened ``times`` times."""
        if self.times is not None and conflict.put_offs >= self.times:
            return Dead(f"put off {conflict.put_offs} times: job {conflict.holder_id} holds its lock")
        return PutOff(self.delay(conflict.put_offs))

    def delay(self, put_offs: int, between: Callable[[float, float], float] = random.uniform) -> float:
        """Return the delay in seconds after ``put_offs`` earlier ones; ``between`` draws from a range."""
        delay = min(self.up_to, self.after * 2.0 ** min(put_offs, _DOUBLINGS))
        return between(delay * (1 - JITTER), min(delay * (1 + JITTER), self.up_to))


def _seconds(option: str, value: object) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise PolicyError(f"Reschedule option {option} {error}.") from None
