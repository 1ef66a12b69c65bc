"""A strategy in any of its forms, read: a name, an instance, a class, a dotted path, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, get_args

from django_jobdedup.dotted import imported
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.strategies.base import OnWaiting, Side, Strategy, is_ours
from django_jobdedup.suggestion import suggest

#: Strategies by name; ``strategies/registry.py`` fills it, because some of them read others.
STRATEGIES: Final[dict[str, type[Strategy]]] = {}


def strategy(value: object) -> Strategy:
    """Return the strategy that a name, an instance, a class, a dotted path or ``[name, {options}]`` means.

    Raises PolicyError for anything else, for unknown options, and for one of a project's own that cannot
    be imported or cannot work.
    """
    if isinstance(value, str):
        return _made(value, {})
    if isinstance(value, type) and issubclass(value, Strategy):
        return _instance(value, {})
    if isinstance(value, Strategy):
        return value if is_ours(type(value)) else _checked(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return _from_json(value)
    raise PolicyError(
        f"on_conflict needs the name of a strategy, or one of your own (a subclass of "
        f"django_jobdedup.strategies.base.Strategy), not {value!r}; {suggest('', STRATEGIES)}"
    )


def _from_json(value: Sequence[object]) -> Strategy:
    if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], Mapping):
        return _made(value[0], value[1])
    raise PolicyError(f"A strategy with options is written [name, {{option: value}}], not {value!r}.")


def _made(name: str, options: Mapping[str, Any]) -> Strategy:
    if name in STRATEGIES:
        return _instance(STRATEGIES[name], options)
    if "." not in name:
        raise PolicyError(f'There is no strategy "{name}"; {suggest(name, STRATEGIES)}')
    try:
        found = imported(name)
    except ImportError as error:
        raise PolicyError(f"The strategy {name!r} {error}.") from error
    if not isinstance(found, type) or not issubclass(found, Strategy):
        raise PolicyError(
            f"{name!r} is no strategy: write a subclass of django_jobdedup.strategies.base.Strategy."
        )
    return _instance(found, options)


def _instance(found: type[Strategy], options: Mapping[str, Any]) -> Strategy:
    known = [each.name for each in fields(found)]
    for option in options:
        if option not in known:
            raise PolicyError(_no_option(found.title(), option, known))
    try:
        made = found(**options)
    except TypeError as error:  # an option without a default, a decide() that was not written
        raise PolicyError(f"{found.__name__}({', '.join(options)}) cannot be made: {error}.") from error
    return made if is_ours(found) else _checked(made)


def _no_option(name: str, option: object, known: list[str]) -> str:
    if not known:
        return f'The strategy "{name}" has no options, so no {option!r}.'
    return f'The strategy "{name}" has no option {option!r}; {suggest(option, known)}'


def _checked(own: Strategy) -> Strategy:
    """Refuse one of a project's own that cannot work or cannot travel. Raises PolicyError."""
    title = own.title()
    if own.on_waiting not in get_args(OnWaiting):
        raise PolicyError(f"{title}.on_waiting is {own.on_waiting!r}; {suggest('', get_args(OnWaiting))}")
    if not own.sides or not set(own.sides) <= set(get_args(Side)):
        raise PolicyError(f"{title}.sides is {own.sides!r}; {suggest('', get_args(Side))}")
    try:
        json.dumps(own.encode(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PolicyError(
            f"The options of {title} travel in the message header: write numbers, texts and lists ({error})."
        ) from error
    return own
