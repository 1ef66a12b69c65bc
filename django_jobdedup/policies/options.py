"""Each option of ``Unique``: what it accepts, and what it makes of it.

A reader takes what was written and returns the value kept; it raises ValueError with the end of a
sentence ("needs ..."), or a PolicyError with a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from django_jobdedup.conf import seconds
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.fingerprint.key import check_key
from django_jobdedup.fingerprint.scope import check_scope
from django_jobdedup.header import MOST
from django_jobdedup.lock_types.registry import lock_type
from django_jobdedup.policies.conflicts import read_on_conflict
from django_jobdedup.suggestion import suggest


class Unset(Enum):
    """The type of ``UNSET``."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


#: An option that was not written.
UNSET: Final = Unset.UNSET


#: What later versions bring, on a task, a call or in a policy, and what to write today.
UNBUILT: Final = {
    "debounce": 'until then the nearest is unique=Unique("until_executed")',
    "throttle": 'until then the nearest is Celery\'s own rate_limit="2/s", counted per worker',
}


def _lock(value: object) -> str:
    return lock_type(value).name


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _key(value: object) -> Any:
    check_key(value)
    return _frozen(value)


def _scope(value: object) -> Any:
    check_scope(value)
    return _frozen(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"needs a text that is not empty, not {value!r}")
    return value


def _text_or_none(value: object) -> str | None:
    if isinstance(value, str) and not value.isprintable():
        raise ValueError(f"needs a text that prints, not {value!r}")
    return None if value is None else _text(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"needs a whole number from 1 on, not {value!r}")
    if value >= MOST:
        raise ValueError(f"needs a number below 2**40, not {value!r}: a message header carries no larger one")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"needs True or False, not {value!r}")
    return value


def _on_store_error(value: object) -> str:
    if value not in ("proceed", "raise"):
        raise ValueError(f'needs "proceed" (run without a lock) or "raise", not {value!r}')
    return str(value)


def _max_starts(value: object) -> int | None:
    return None if value is None else _count(value)


def _canvas(value: object) -> str:
    if value not in ("follow", "run", "mark"):
        raise ValueError(
            f'needs "follow" (take the other job\'s outcome), "run" or "mark" (do nothing), not {value!r}'
        )
    return str(value)


def _at_least(least: float) -> Callable[[object], float]:
    def read_seconds(value: object) -> float:
        found = seconds(value)
        if found < least:
            raise ValueError(f"needs at least {least:g} seconds, not {value!r}: nothing shorter can be kept")
        return found

    return read_seconds


#: Option to its reader, in the order of the signature.
READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "lock": _lock,
    "key": _key,
    "scope": _scope,
    "lock_name": _text_or_none,
    "ttl": _at_least(0.1),
    "lease": _at_least(1.0),
    "limit": _count,
    "on_conflict": read_on_conflict,
    "max_starts": _max_starts,
    "keep_on_failure": _flag,
    "on_store_error": _on_store_error,
    "canvas": _canvas,
    "store": _text,
    "observe": _flag,
}


def read(option: str, value: object) -> Any:
    """Return the value that is kept. Raises PolicyError with what to write instead."""
    try:
        return READERS[option](value)
    except PolicyError:
        raise
    except ValueError as error:
        raise PolicyError(f"Unique option {option} {error}.") from None


def check_names(given: Mapping[str, object]) -> None:
    """Refuse options that do not exist. Raises PolicyError with those that do."""
    for name in given:
        if name in UNBUILT:
            raise PolicyError(f"Unique has no option {name!r}: it is not built yet; {UNBUILT[name]}.")
        if name not in READERS:
            raise PolicyError(f"Unique has no option {name!r}; {suggest(name, READERS)}")


def check_options(options: Mapping[str, Any], where: str) -> None:
    """Refuse unknown options and wrong values, each by itself; pairs need the whole policy.

    Raises PolicyError that names ``where``.
    """
    try:
        check_names(options)
        for name, value in options.items():
            read(name, value)
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None
