"""``wait``: the start blocks for a while, then the next strategy decides. It holds its worker slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Never

from django_jobdedup.conf import Duration
from django_jobdedup.conf import seconds as read_seconds
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.outcomes import Block, Decision
from django_jobdedup.strategies.base import Conflict, Side, Strategy, check_written
from django_jobdedup.strategies.reading import strategy
from django_jobdedup.strategies.reschedule import Reschedule

#: Longest wait, seconds: a third of what RabbitMQ lets a message go without an ack.
LONGEST: Final = 600.0
#: Stands for seconds that were not written.
_UNSAID: Final[Any] = None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Wait(Strategy):
    """Hold the start for at most ``seconds`` (or a ``timedelta``), then let ``then`` decide.

    The time must fit into a third of the broker's visibility timeout; a worker whose broker has a
    shorter one does not start.
    """

    name: ClassVar[str] = "wait"
    sides: ClassVar[tuple[Side, ...]] = ("execution",)
    instead: ClassVar[str] = (
        'only a start can wait. Write it for the lock "while_executing", or as {"execution": Wait(5)} for '
        'the lock "until_and_while_executing".'
    )

    seconds: float
    then: Strategy = Reschedule()  # noqa: RUF009 - frozen

    def __init__(
        self,
        seconds: Duration = _UNSAID,
        then: str | Strategy | Sequence[Any] = "reschedule",
        *more: Never,
        **unknown: Never,
    ) -> None:
        check_written("Wait", ("seconds", "then"), more, unknown)
        if seconds is _UNSAID:
            raise PolicyError(
                '"wait" needs the seconds for which a start may wait: write Wait(5), where only JSON goes '
                '["wait", {"seconds": 5}].'
            )
        try:
            value = read_seconds(seconds)
        except ValueError as error:
            raise PolicyError(f"Wait option seconds {error}.") from None
        if value > LONGEST:
            raise PolicyError(
                f"Wait({value:g}) holds a worker slot for too long: write {LONGEST:g} or less, or "
                '"reschedule", which holds none.'
            )
        following = None if then == self.name else strategy(then)
        if following is None or isinstance(following, Wait):
            raise PolicyError("Wait(then=...) cannot wait again: write one longer Wait.")
        following.check_side("execution")
        object.__setattr__(self, "seconds", value)
        object.__setattr__(self, "then", following)

    def decide(self, conflict: Conflict) -> Decision:
        """Block, with what comes after it."""
        return Block(self.seconds, self.then.decide(conflict))
