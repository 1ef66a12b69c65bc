"""A strategy: a conflict in, a decision out; no I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Final, Literal

from django_jobdedup.dotted import path_of
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.outcomes import Decision
from django_jobdedup.suggestion import suggest

#: Where a newcomer meets a holder: as it is published, or as its body is about to start.
Side = Literal["dispatch", "execution"]
#: What a refused dispatch does with a waiting holder: leave it, give it the newest arguments, come over
#: it, or come over it if due sooner.
OnWaiting = Literal["keep", "merge", "over", "soonest"]

_OURS: Final = __name__.partition(".")[0]


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
    """What becomes of the newcomer in a conflict; frozen, compared by value.

    One of a project's own is a subclass, with options as a frozen dataclass has fields: numbers, texts
    and lists of them, for they travel in the message header.
    """

    #: Name in a policy, in JSON and in the message header; one of a project's own goes by its dotted path.
    name: ClassVar[str] = ""
    #: Where it may be declared.
    sides: ClassVar[tuple[Side, ...]] = ("dispatch", "execution")
    #: What a refused dispatch does with a waiting holder: the store's knob.
    on_waiting: ClassVar[OnWaiting] = "keep"
    #: Running jobs do not refuse a dispatch: the newcomer waits beside them, behind the gate.
    beside_running: ClassVar[bool] = False
    #: What to write instead on a side where it may not stand.
    instead: ClassVar[str] = ""

    @abstractmethod
    def decide(self, conflict: Conflict) -> Decision:
        """Turn a conflict into a decision."""

    @classmethod
    def title(cls) -> str:
        """Return what it goes by: the name, or the dotted path of one of a project's own.

        Raises PolicyError for one that no other process could import.
        """
        if is_ours(cls):
            return cls.name
        try:
            return path_of(cls)
        except ValueError as error:
            raise PolicyError(f"A strategy of your own {error}.") from None

    def encode(self) -> str | list[Any]:
        """Return the JSON form: the name, or ``[name, {option: value}]`` with all that is no default."""
        options = {name: _plain(value) for name, value in self._written().items()}
        return [self.title(), options] if options else self.title()

    def __json__(self) -> str | list[Any]:
        """Encode for kombu's JSON serializer, so that a strategy travels in canvas options."""
        return self.encode()

    def __repr__(self) -> str:
        """Return what to write to get this one: what differs from the default."""
        said = (f"{name}={repr(value).removesuffix('.0')}" for name, value in self._written().items())
        return f"{type(self).__name__}({', '.join(said)})"

    def _written(self) -> dict[str, Any]:
        values = ((each, getattr(self, each.name)) for each in fields(self))
        return {
            each.name: value
            for each, value in values
            if value != (each.default if each.default_factory is MISSING else each.default_factory())
        }

    def check_side(self, side: Side) -> None:
        """Raise PolicyError where this strategy cannot stand, with what to write instead."""
        if side not in self.sides:
            raise PolicyError(f'on_conflict="{self.title()}" cannot stand at {side}: {self.instead}')


def check_written(title: str, known: Iterable[str], more: Sequence[object], unknown: Iterable[str]) -> None:
    """Refuse options that a strategy does not have, by place or by name. Raises PolicyError."""
    names = list(known)
    if more:
        raise PolicyError(f"{title} takes no {more[0]!r} in that place; {suggest('', names)}")
    for option in unknown:
        raise PolicyError(f"{title} has no option {option!r}; {suggest(option, names)}")


def is_ours(found: type[Strategy]) -> bool:
    """Say whether a strategy comes with this package."""
    return found.__module__.partition(".")[0] == _OURS


def _plain(value: Any) -> Any:
    return value.encode() if isinstance(value, Strategy) else value
