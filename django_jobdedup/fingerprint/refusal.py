"""Why a value has no canonical form, where it lies in the call, and what to write instead."""

from __future__ import annotations

import io
import sys
import types
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from django_jobdedup.exceptions import FingerprintError

#: Segments of a path that a message shows; a cycle would show a hundred.
SHOWN: Final = 8

_CALLABLES: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
_GENERAL: Final = (
    "Pass its id or a plain value, name the arguments that identify the job with key=[...], "
    "or give its class a method __fingerprint__() that returns a plain value"
)


class Refusal(Exception):  # noqa: N818 - inside this room only; callers see FingerprintError
    """A value without a form, on its way out of the walk; each container adds where it was."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.segments: list[str] = []

    def within(self, segment: str) -> Refusal:
        """Add the step that leads from a container to the value, innermost first."""
        self.segments.append(segment)
        return self

    def error(self, name: str) -> FingerprintError:
        """Return the public error for an argument called ``name``."""
        steps = self.segments[::-1]
        path = name + "".join(steps[:SHOWN]) + ("..." if len(steps) > SHOWN else "")
        path = path.removeprefix(".")
        return FingerprintError(f"Argument {path} {self.reason}.", argument=path)


def unfit(value: object) -> Refusal:
    """Return the refusal of a value whose type is not in the table."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return Refusal(f"is of type {name}, which has no canonical form. {_advice(kind)}")


def _advice(kind: type) -> str:
    """Say what to pass instead of a value of this type."""
    if issubclass(kind, _CALLABLES):
        return "Pass its dotted path as text"
    if issubclass(kind, io.IOBase):
        return "Pass the name of the file, or its content as bytes"
    if issubclass(kind, PurePath):
        return "Pass str(path)"
    if issubclass(kind, Iterator | range):
        return "Pass a list; an iterator would be used up by looking at it"
    if _is_query(kind):
        return "Pass a list of primary keys: list(queryset.values_list('pk', flat=True))"
    if kind.__module__.partition(".")[0] == "numpy":
        return "Pass value.item() or value.tolist()"
    return _GENERAL


def _is_query(kind: type) -> bool:
    models = sys.modules.get("django.db.models")
    return models is not None and issubclass(kind, models.QuerySet | models.manager.BaseManager)
