"""Call a function that the project gave, so that its errors say for whom it was called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def ask(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object], note: str
) -> object:
    """Return what the function makes of the arguments; an exception passes, with ``note`` added to it."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        error.add_note(note)
        raise
