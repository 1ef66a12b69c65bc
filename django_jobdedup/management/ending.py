"""The end of a command that runs for long: the first SIGTERM or SIGINT asks, the second kills."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """Within the block the signals only set a flag; outside of the main thread they are left alone."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._ask) for each in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def is_near(self) -> bool:
        """Say whether the process has been asked to go."""
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the process is asked to go; say whether it was."""
        return self._asked.wait(seconds)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()
        self._restore()

    def _restore(self) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}
