"""The end of a command that runs for long: the first SIGTERM or SIGINT asks, the second kills."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: The longest sleep without a look at the flag, seconds.
LOOK: Final = 0.2


class Ending:
    """Within the block the signals only set a flag; outside of the main thread they are left alone.

    The flag is a plain one: a handler runs between two steps of the main thread, which may hold the lock of
    an Event at that moment, and would wait for itself.
    """

    def __init__(self) -> None:
        self._asked = False
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
        return self._asked

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the process is asked to go; say whether it was."""
        until = time.monotonic() + seconds
        while not self._asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
        return self._asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self._restore()

    def _restore(self) -> None:
        before, self._before = self._before, {}
        for each, handler in before.items():
            signal.signal(each, handler)
