"""Which part of a call makes it equal to another: the option ``key`` of a policy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from django_jobdedup.exceptions import FingerprintError, PolicyError
from django_jobdedup.fingerprint.binding import Arguments, bind, shape_of
from django_jobdedup.fingerprint.callback import ask
from django_jobdedup.fingerprint.canonical import canonical, canonical_arguments

#: None: all arguments. No names: the task name only. A callable takes the task's own arguments.
Key: TypeAlias = str | Sequence[str] | Callable[..., object] | None


def check_key(key: object) -> None:
    """Refuse what can never be a key, knowing nothing of the task. Raises PolicyError."""
    if inspect.iscoroutinefunction(key):
        raise PolicyError("key is an async function; write a plain function that returns the value.")
    if key is None or callable(key):
        return
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise PolicyError(
            f"key={key!r} cannot be used; write an argument name, a list of argument names, "
            "a function of the task's arguments, [] for the task name only, or None for all arguments."
        )


def check_names(key: Key, function: Callable[..., object]) -> None:
    """Refuse names that the task does not take. Raises PolicyError, which lists those that it takes."""
    shape = shape_of(function)
    if shape is None or shape.rest is not None:
        return
    for name in _names(key):
        if name not in shape.template:
            raise PolicyError(_unknown(name, list(shape.template)))


def select(
    bound: Arguments, key: Key, args: Sequence[object], kwargs: Mapping[str, object], task: str = ""
) -> object:
    """Return the part of a call that counts: named arguments, or what a callable returned.

    A name may also be a keyword that ends in ``**kwargs``. A callable is called with ``args`` and
    ``kwargs`` as the caller wrote them; its exception passes, with a note that names the task.
    Raises FingerprintError for a name that this call has no value for.
    """
    if key is None:
        return bound
    if callable(key):
        return ask(key, args, kwargs, f"raised by the key function of task {task}")
    return Arguments({name: _value(bound, name) for name in _names(key)}, bound.rest, bound.known)


def key_text(
    function: Callable[..., object] | None,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    key: Key = None,
    task: str = "",
) -> str:
    """Return the canonical text of what counts in a call: bind, select, write.

    Raises the call's own TypeError if the arguments do not fit, FingerprintError if one has no form.
    """
    selected = select(bind(function, args, kwargs), key, args, kwargs, task)
    if isinstance(selected, Arguments):
        return canonical_arguments(selected)
    return canonical(selected, "key()")


def _names(key: Key) -> Sequence[str]:
    if key is None or callable(key):
        return ()
    return (key,) if isinstance(key, str) else key


def _value(bound: Arguments, name: str) -> object:
    if bound.known and name in bound:
        return bound[name]
    rest = bound[bound.rest] if bound.rest is not None else {}
    if isinstance(rest, Mapping) and name in rest:
        return rest[name]
    if not bound.known:
        message = (
            f"Argument {name} cannot be found: this process does not know the task, so that only keyword "
            f"arguments have names. Pass {name} by keyword, or import the task's module."
        )
    elif bound.rest is not None:
        message = f"Argument {name} is named by key and was not given. Pass it by keyword."
    else:
        message = _unknown(name, list(bound))
    raise FingerprintError(message, argument=name)


def _unknown(name: str, known: list[str]) -> str:
    """Say which names there are, and which one was probably meant."""
    close = get_close_matches(name, known, 1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    takes = ", ".join(known) or "nothing"
    return f"key names {name!r}, which the task does not take; {meant}it takes: {takes}."
