"""Values to canonical text: equal for the user, equal text; different, different text.

The text is JSON with tags: printable ASCII, and no value can imitate another. The table of values is the
page ``docs/reference/fingerprint.md``. Any change of any byte is a new format version (``digest.FORMAT``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from django_jobdedup.fingerprint import scalars
from django_jobdedup.fingerprint.refusal import Refusal, unfit
from django_jobdedup.fingerprint.rows import awake, row_of
from django_jobdedup.fingerprint.scalars import SCALARS, quoted

#: Levels of nesting; deeper is refused, which also ends a value that contains itself.
MAX_DEPTH: Final = 100

_DEEP: Final = (
    f"is nested deeper than {MAX_DEPTH} levels, or contains itself. "
    "Pass an id, or name the arguments that identify the job with key=[...]"
)
_NAIVE: Final = (
    "is a naive datetime beside aware ones, and could mean any zone. Pass an aware one: "
    "django.utils.timezone.make_aware(value)"
)
_TWICE: Final = "has two keys that JSON writes the same way. Keep one of them"


def canonical(value: object, name: str = "value") -> str:
    """Return the canonical text of one value; ``name`` is what errors call it.

    Raises FingerprintError, with the path of the part that has no form, such as ``rows[3].owner``.
    """
    return _written(lambda walk: walk.text(value, 0), name)


def canonical_arguments(arguments: Mapping[str, object]) -> str:
    """Return the canonical text of named arguments, the same as of an equal dict.

    Raises FingerprintError, which names the argument: ``rows[3].owner``, ``filters['x']``.
    """
    return _written(lambda walk: walk.named(arguments.items(), 0), "")


def _written(write: Callable[[_Walk], str], name: str) -> str:
    walk = _Walk()
    try:
        text = write(walk)
        if walk.naive and walk.aware:
            write(_Walk(refuse_naive=True))  # once more, to learn which one is naive
    except Refusal as refusal:
        raise refusal.error(name) from None
    except RecursionError:
        # The stack was nearly full before we came: the depth limit alone cannot know.
        raise Refusal(_DEEP).error(name) from None
    return text


class _Walk:
    """One pass over the values of one call."""

    __slots__ = ("aware", "naive", "refuse_naive")

    def __init__(self, refuse_naive: bool = False) -> None:
        self.aware = self.naive = False
        self.refuse_naive = refuse_naive

    def text(self, value: Any, depth: int) -> str:
        """Write any value."""
        kind = type(value)
        scalar = SCALARS.get(kind)
        if scalar is not None:
            return scalar(value)
        if depth >= MAX_DEPTH:
            raise Refusal(_DEEP)
        form = _CONTAINERS.get(kind, _Walk.other)
        return form(self, value, depth + 1)

    def items(self, value: Iterable[Any], depth: int) -> str:
        """Write a list or a tuple, which the wire cannot tell apart."""
        texts: list[str] = []
        try:
            for item in value:
                texts.append(self.text(item, depth))
        except Refusal as refusal:
            raise refusal.within(f"[{len(texts)}]") from None
        return f"[{','.join(texts)}]"

    def members(self, value: Iterable[Any], depth: int) -> str:
        """Write a set, sorted by the text of its members: the order in memory depends on the hash seed."""
        try:
            return f"set({','.join(sorted({self.text(item, depth) for item in value}))})"
        except Refusal as refusal:
            raise refusal.within("{...}") from None

    def mapping(self, value: dict[Any, Any], depth: int) -> str:
        """Write a dict, sorted by the text of its keys."""
        texts: dict[str, str] = {}
        for key, item in dict.items(value):
            try:
                written = self.key(key, depth)
                if written in texts:
                    raise Refusal(_TWICE)
                texts[written] = self.text(item, depth)
            except Refusal as refusal:
                raise refusal.within(_step(key)) from None
        return _braced(texts)

    def key(self, key: Any, depth: int) -> str:
        """Write a key: as JSON does, a text; one that JSON refuses in its own canonical form."""
        kind = type(key)
        if issubclass(kind, str):
            return quoted(key)
        if issubclass(kind, float):
            return f'"{scalars.key_real(key)}"'
        if kind is bool or key is None:
            return f'"{SCALARS[kind](key)}"'
        if issubclass(kind, int):
            return f'"{scalars.whole(key)}"'
        return self.text(key, depth)

    def named(self, pairs: Iterable[tuple[str, Any]], depth: int) -> str:
        """Write named parts: arguments, fields."""
        texts: dict[str, str] = {}
        for name, value in pairs:
            try:
                texts[quoted(name)] = self.text(value, depth)
            except Refusal as refusal:
                raise refusal.within(f".{name}") from None
        return _braced(texts)

    def moment(self, value: datetime, depth: int) -> str:
        """Write a datetime, and remember of which kind it was."""
        offset = value.utcoffset()
        if offset is not None:
            self.aware = True
        elif self.refuse_naive:
            raise Refusal(_NAIVE)
        else:
            self.naive = True
        return scalars.moment(value, offset)

    def other(self, value: Any, depth: int) -> str:
        """Write what is not exactly of a type in the table: its own form, lazy, derived, or none."""
        kind = type(value)
        if hasattr(kind, "__fingerprint__"):
            return self.part(value.__fingerprint__(), ".__fingerprint__()", depth)
        found = awake(value)
        if found is not value:
            return self.text(found, depth)
        for base, form in _BASES:
            if issubclass(kind, base):
                return form(self, value, depth)
        if issubclass(kind, Enum):
            return f"enum({_path(kind)},{self.part(value.value, '.value', depth)})"
        if is_dataclass(value) and not isinstance(value, type):
            return f"dataclass({_path(kind)},{self.named(_fields(value), depth)})"
        return self.row(value, depth)

    def row(self, value: Any, depth: int) -> str:
        """Write a saved model instance; anything else ends here."""
        row = row_of(value)
        if row is None:
            raise unfit(value)
        label, pk, alias = row
        return f"model({quoted(label)},{self.part(pk, '.pk', depth)},{quoted(alias)})"

    def part(self, value: Any, step: str, depth: int) -> str:
        """Write one part of a value, reached by ``step``."""
        try:
            return self.text(value, depth)
        except Refusal as refusal:
            raise refusal.within(step) from None


_CONTAINERS: Final[dict[type, Callable[[_Walk, Any, int], str]]] = {
    dict: _Walk.mapping,
    list: _Walk.items,
    tuple: _Walk.items,
    set: _Walk.members,
    frozenset: _Walk.members,
    datetime: _Walk.moment,
}


def _as_scalar(form: Callable[[Any], str]) -> Callable[[_Walk, Any, int], str]:
    return lambda walk, value, depth: form(value)


#: A subclass counts as its base: SafeString, OrderedDict, namedtuple, TextChoices. The wire makes it so.
#: datetime stands before date, which it derives from.
_BASES: Final = (
    *_CONTAINERS.items(),
    *((base, _as_scalar(form)) for base, form in SCALARS.items()),
)


def _fields(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the fields that count when two instances are compared."""
    for field in fields(value):
        if field.compare:
            try:
                yield field.name, getattr(value, field.name)
            except AttributeError:
                raise Refusal("has a field that was never set").within(f".{field.name}") from None


def _path(kind: type) -> str:
    return quoted(f"{kind.__module__}.{kind.__qualname__}")


def _braced(texts: dict[str, str]) -> str:
    return f"{{{','.join([f'{key}:{texts[key]}' for key in sorted(texts)])}}}"


def _step(key: object) -> str:
    """Return the step to an item of a dict, as one would write it, cut short."""
    if type(key) is int:
        return f"[{scalars.whole(key):.40}]"
    return f"[{key!r:.40}]" if type(key) in SCALARS else f"[{type(key).__name__}]"
