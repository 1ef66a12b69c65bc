"""A strategy: a conflict in, a decision out; no I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.outcomes import Decision

#: Where a newcomer meets a holder: as it is published, or as its body is about to start.
Side = Literal["dispatch", "execution"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A call or a start that met a live holder.

    ``holder_id`` is the holder's Celery task id, ``state`` one of ``P W R K``, ``since`` and ``until``
    are the store's instants (epoch seconds), ``by`` says who runs it. ``retry_in`` is the store's hint
    in seconds when the gate may open. ``put_offs`` counts how often this job was put off before.
    """

    side: Side
    holder_id: str
    state: str = ""
    since: float = 0.0
    until: float = 0.0
    by: str = ""
    retry_in: float = 0.0
    put_offs: int = 0
    fingerprint: str = ""
    task: str = ""


@dataclass(frozen=True, slots=True)
class Strategy(ABC):
    """What becomes of the newcomer in a conflict; frozen, compared by value."""

    #: Name in a policy, in JSON and in the message header.
    name: ClassVar[str]
    #: Where it may be declared.
    sides: ClassVar[tuple[Side, ...]] = ("dispatch", "execution")
    #: What a refused dispatch does with a waiting holder: the store's knob.
    on_waiting: ClassVar[str] = "keep"
    #: What to write instead on a side where it may not stand.
    instead: ClassVar[str] = ""

    @abstractmethod
    def decide(self, conflict: Conflict) -> Decision:
        """Turn a conflict into a decision."""

    def encode(self) -> str | list[Any]:
        """Return the JSON form: the name, or ``[name, {option: value}]`` with all that is no default."""
        options = {
            each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default
        }
        return [self.name, options] if options else self.name

    def __json__(self) -> str | list[Any]:
        """Encode for kombu's JSON serializer, so that a strategy travels in canvas options."""
        return self.encode()

    def check_side(self, side: Side) -> None:
        """Raise PolicyError where this strategy cannot stand, with what to write instead."""
        if side not in self.sides:
            raise PolicyError(f'on_conflict="{self.name}" cannot stand at {side}: {self.instead}')
