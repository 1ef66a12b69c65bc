"""A lock type of a project's own: a subclass of ``LockType`` whose attributes are the knobs."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any, Final

from django_jobdedup.dotted import imported, path_of
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.lock_types.base import LockType

_STATES: Final = "PWRK"
_SIDES: Final = ("dispatch", "execution")


def own_lock_type(value: object) -> LockType:
    """Return the lock type that a class, or its dotted path, declares; its name is the path.

    Raises PolicyError for what cannot be imported, is no subclass of LockType or has knobs that cannot work.
    """
    declared = _imported(value) if isinstance(value, str) else value
    if not isinstance(declared, type) or not issubclass(declared, LockType) or declared is LockType:
        raise PolicyError(
            f"{value!r} is no lock type: write a subclass of django_jobdedup.lock_types.base.LockType."
        )
    try:
        path = path_of(declared)
    except ValueError as error:
        raise PolicyError(f"A lock type {error}.") from None
    counts = _knob(declared, "counts", "PWR")
    at_dispatch = _knob(declared, "at_dispatch", bool(counts))
    found = LockType(
        name=path,
        counts=counts,
        gated=_knob(declared, "gated", True),
        keeps=_knob(declared, "keeps", False),
        at_dispatch=at_dispatch,
        conflicts=_knob(declared, "conflicts", ("dispatch",) if at_dispatch else ("execution",)),
    )
    _check(found)
    return found


def _imported(path: str) -> object:
    try:
        return imported(path)
    except ImportError as error:
        raise PolicyError(f"The lock type {path!r} {error}.") from error


def _knob(declared: type, name: str, default: Any) -> Any:
    value = getattr(declared, name)
    return default if isinstance(value, MemberDescriptorType) else value


def _check(found: LockType) -> None:
    """Refuse knobs that cannot work. Raises PolicyError."""
    if not isinstance(found.counts, str) or not set(found.counts) <= set(_STATES):
        _refuse(found, f"counts is {found.counts!r}; it takes letters of {_STATES}, such as 'PWR'")
    for name in ("gated", "keeps", "at_dispatch"):
        if not isinstance(getattr(found, name), bool):
            _refuse(found, f"{name} is {getattr(found, name)!r}; it takes True or False")
    if not isinstance(found.conflicts, tuple) or not found.conflicts or set(found.conflicts) - set(_SIDES):
        _refuse(found, f"conflicts is {found.conflicts!r}; it takes a tuple of 'dispatch' and 'execution'")
    if found.at_dispatch != bool(found.counts):
        _refuse(found, "a lock taken at dispatch counts states that refuse one, any other counts none")
    if not found.at_dispatch and "dispatch" in found.conflicts:
        _refuse(found, "a lock that is not taken at dispatch cannot conflict there")
    if not found.gated and "execution" in found.conflicts:
        _refuse(found, "only a gated lock can conflict at execution")
    if found.keeps and "K" not in found.counts:
        _refuse(found, "a lock that keeps its seat after the end counts kept ones: add K to counts")


def _refuse(found: LockType, what: str) -> None:
    raise PolicyError(f"The lock type {found.name} cannot work: {what}.")
