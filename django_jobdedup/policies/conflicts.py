"""The option ``on_conflict``: one strategy, or one for each side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.lock_types.base import LockType
from django_jobdedup.strategies.base import Side, Strategy
from django_jobdedup.strategies.registry import strategy
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.strategies.skip import Skip
from django_jobdedup.suggestion import suggest

SIDES: Final[tuple[Side, ...]] = ("dispatch", "execution")
#: What happens where the policy says nothing.
DEFAULTS: Final[dict[Side, Strategy]] = {"dispatch": Skip(), "execution": Reschedule()}


@dataclass(frozen=True, slots=True)
class BothSides:
    """``{"dispatch": ..., "execution": ...}``, read; None where the default stands."""

    dispatch: Strategy | None = None
    execution: Strategy | None = None

    def encode(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {side: found.encode() for side in SIDES if (found := getattr(self, side)) is not None}


#: The option, read.
OnConflict = Strategy | BothSides | None


def read_on_conflict(value: object) -> OnConflict:
    """Read the option in any of its forms. Raises PolicyError."""
    if value is None or isinstance(value, BothSides):
        return value
    if not isinstance(value, Mapping):
        return strategy(value)
    for side in value:
        if side not in SIDES:
            raise PolicyError(f"on_conflict has no side {side!r}; {suggest(side, SIDES)}")
    return BothSides(**{side: strategy(each) for side, each in value.items() if each is not None})


def check_on_conflict(lock: LockType, value: OnConflict) -> None:
    """Refuse a strategy that cannot stand where this lock type conflicts. Raises PolicyError."""
    for side, chosen in _chosen(lock, value).items():
        chosen.check_side(side)
    both = len(lock.conflicts) == len(SIDES)
    if isinstance(value, BothSides) and not both:
        only = lock.conflicts[0]
        raise PolicyError(
            f'The lock "{lock.name}" conflicts at {only} only: write the strategy itself, as '
            f"on_conflict={(getattr(value, only) or DEFAULTS[only]).encode()!r}, not a dict of sides."
        )
    if both and isinstance(value, Reschedule):
        raise PolicyError(
            f'The lock "{lock.name}" conflicts at dispatch and at execution, and a start is rescheduled '
            f'unless told otherwise. Say for which side this is: on_conflict={{"execution": {value!r}}}.'
        )


def strategy_at(side: Side, lock: LockType, value: OnConflict) -> Strategy:
    """Return the strategy in force at one side."""
    return _chosen(lock, value).get(side, DEFAULTS[side])


def _chosen(lock: LockType, value: OnConflict) -> dict[Side, Strategy]:
    """Return what the user chose, by side; one strategy alone is for the first side that conflicts."""
    if value is None:
        return {}
    if isinstance(value, BothSides):
        return {side: found for side in SIDES if (found := cast("Strategy | None", getattr(value, side)))}
    return {lock.conflicts[0]: value}
