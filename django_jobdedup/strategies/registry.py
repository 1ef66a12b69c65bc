"""Strategies by name, by instance and by their JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.strategies.base import Strategy
from django_jobdedup.strategies.log import Log
from django_jobdedup.strategies.raise_ import Raise
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.strategies.skip import Skip
from django_jobdedup.suggestion import suggest

STRATEGIES: Final[dict[str, type[Strategy]]] = {each.name: each for each in (Skip, Log, Raise, Reschedule)}

#: Strategies of later versions, with what does the nearest thing today.
NOT_BUILT: Final = {
    "reject": 'use "log", which refuses the newcomer with a warning',
    "replace": 'use "skip", which keeps the older job',
    "keep_soonest": 'use "skip", which keeps the older job',
    "rerun": 'use the lock "until_and_while_executing", which lets one more job wait while one runs',
    "wait": 'use "reschedule", which runs the newcomer later without holding a worker slot',
}


def strategy(value: object) -> Strategy:
    """Return the strategy that a name, an instance or the JSON form ``[name, {options}]`` means.

    Raises PolicyError for anything else, for what is not built yet and for unknown options.
    """
    if isinstance(value, str):
        return _made(value, {})
    if isinstance(value, Strategy) and type(value) in STRATEGIES.values():
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return _from_json(value)
    if isinstance(value, type) and value in STRATEGIES.values():
        raise PolicyError(f"on_conflict is a class; write {value.__name__}(), an instance.")
    if isinstance(value, type | Strategy) or callable(value):
        raise _own(value)
    raise PolicyError(f"on_conflict needs the name of a strategy, not {value!r}; {suggest('', STRATEGIES)}")


def _made(name: str, options: Mapping[str, Any]) -> Strategy:
    found = STRATEGIES.get(name)
    if found is None:
        raise _unknown(name)
    known = [each.name for each in fields(found)]
    for option in options:
        if option not in known:
            raise PolicyError(_no_option(name, option, known))
    return found(**options)


def _from_json(value: Sequence[object]) -> Strategy:
    if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], Mapping):
        return _made(value[0], value[1])
    raise PolicyError(f"A strategy with options is written [name, {{option: value}}], not {value!r}.")


def _no_option(name: str, option: object, known: list[str]) -> str:
    if not known:
        return f'The strategy "{name}" has no options, so no {option!r}.'
    return f'The strategy "{name}" has no option {option!r}; {suggest(option, known)}'


def _unknown(name: str) -> PolicyError:
    if name.lower() in NOT_BUILT:
        return PolicyError(f'The strategy "{name}" is not built yet; {NOT_BUILT[name.lower()]}.')
    if "." in name:
        return _own(name)
    return PolicyError(f'There is no strategy "{name}"; {suggest(name, STRATEGIES)}')


def _own(value: object) -> PolicyError:
    return PolicyError(
        f"Own strategies are not built yet, so {value!r} cannot be used; {suggest('', STRATEGIES)}"
    )
