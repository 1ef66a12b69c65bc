"""Stories that wait by yielding: one thread tells hundreds, and the waits of one are the waits of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Mapping
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Story = Generator[None, None, T]

PACE = 0.1
"""Seconds between two looks at all stories."""


def until(condition: Callable[[], object], timeout: float, what: str) -> Story[None]:
    """Wait; raises AssertionError that names *what* was waited for, *timeout* in seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"waited {timeout:g} s in vain for {what}"
        yield


def pause(seconds: float) -> Story[None]:
    """Let time pass."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def tell_all(stories: Mapping[K, Story[T]]) -> dict[K, T | Exception]:
    """Tell all stories side by side; give what each returned or raised."""
    told: dict[K, T | Exception] = {}
    while len(told) < len(stories):
        for name, story in stories.items():
            if name not in told:
                try:
                    next(story)
                except StopIteration as end:
                    told[name] = end.value
                except Exception as error:
                    told[name] = error
        time.sleep(PACE)
    return told
