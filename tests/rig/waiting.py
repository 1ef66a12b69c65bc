"""Wait for a fact instead of sleeping for a guess."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    predicate: Callable[[], T],
    timeout: float = 10.0,
    *,
    every: float = 0.02,
    what: str | Callable[[], str] = "the condition",
) -> T:
    """Call *predicate* until its value is true and return that value.

    *timeout* and *every* are seconds. Raises ``AssertionError`` that names *what* was waited for; a
    callable *what* is asked at the end, so it can show the state of that moment.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            text = what() if callable(what) else what
            raise AssertionError(f"waited {timeout:g} s in vain for {text}; the last value was {value!r}")
        time.sleep(every)
