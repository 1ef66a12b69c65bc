"""A process that has everything imported and forks senders and workers on demand: milliseconds, not seconds.

``python -m tests.crash.zygote`` reads one JSON object a line from standard input and answers with one:

``{"do": "send", "task": name, "args": [...], "options": {...}, "plan": {...}}`` gives ``{"status": -9}``
``{"do": "work", "queue": name, "log": path}`` gives ``{"pid": 123}``
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Never

from testproject.celery import app
from testproject.embedded_redis import die_with_parent

SURVIVES = 3.0
"""Seconds after which a sender that was not killed gives up."""


def main() -> None:
    """Serve until standard input ends."""
    app.loader.import_default_modules()
    app.finalize()
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            reap()
            order = json.loads(line)
            print(json.dumps(ORDERS[order.pop("do")](**order)), flush=True)


def send(task: str, args: list[Any], options: dict[str, Any], plan: dict[str, Any]) -> dict[str, int]:
    """Fork a sender, let it dispatch, wait for its end."""
    from tests.crash.strikes import Plan, for_sender

    def child() -> None:
        for_sender(Plan(**plan))
        app.tasks[task].apply_async(args, **options)
        time.sleep(SURVIVES)  # the confirm goes out in the background

    _, status = os.waitpid(fork(child), 0)
    return {"status": os.waitstatus_to_exitcode(status)}


def work(queue: str, log: str) -> dict[str, int]:
    """Fork a worker with one pool process."""

    def child() -> None:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        words = ["worker", "--hostname", f"{queue}@localhost", "--loglevel", "INFO", "--concurrency", "1"]
        words += ["--queues", queue, "--without-gossip", "--without-mingle", "--without-heartbeat"]
        app.worker_main(words)

    return {"pid": fork(child)}


def fork(child: Callable[[], None]) -> int:
    """Run *child* in a process that dies with this one; give its pid."""
    last_wish = die_with_parent()
    pid = os.fork()
    if pid:
        return pid
    _run(child, last_wish)


def _run(child: Callable[[], None], last_wish: Callable[[], None] | None) -> Never:
    try:
        if last_wish is not None:
            last_wish()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        child()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def reap() -> None:
    """Take note of the dead."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


ORDERS: dict[str, Callable[..., dict[str, int]]] = {"send": send, "work": work}

if __name__ == "__main__":
    main()
