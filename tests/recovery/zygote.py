"""A process that has everything imported and forks relays on demand, to be killed at a point.

``python -m tests.recovery.zygote`` reads one point a line from standard input, forks a relay that dies by
SIGKILL when it comes by that point for the first time, and answers with its exit status. An empty line asks
for a relay that lives. It opens no connection itself, so none is shared.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

from kombu.transport.redis import Channel

from testproject.celery import app

POINTS: Final = (
    "after due",
    "before acquire",
    "after acquire",
    "before publish",
    "after publish",
    "before confirm",
    "after confirm",
)
"""Before and after each step that anybody else can see: the stamp, the seat, the message, the confirm."""


def main() -> None:
    """Serve until standard input ends."""
    app.loader.import_default_modules()
    app.finalize()
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            _, status = os.waitpid(fork(line.strip()), 0)
            print(os.waitstatus_to_exitcode(status), flush=True)


def fork(point: str) -> int:
    """Fork a relay that dies at a point; give its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _relay(point)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _relay(point: str) -> None:
    from django_jobdedup.recovery.duty import never
    from django_jobdedup.recovery.relay import relay
    from django_jobdedup.stores.database.store import DatabaseStore

    _plant(DatabaseStore, "due", "due", point)
    _plant(DatabaseStore, "acquire_many", "acquire", point)
    _plant(DatabaseStore, "acquire", "acquire", point)
    _plant(DatabaseStore, "confirm", "confirm", point)
    _plant(Channel, "_put", "publish", point)
    relay(never)


def _plant(owner: Any, name: str, step: str, point: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _strike(f"before {step}", point)
        answer = original(*args, **kwargs)
        _strike(f"after {step}", point)
        return answer

    setattr(owner, name, wrapper)


def _strike(here: str, point: str) -> None:
    if here == point:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
