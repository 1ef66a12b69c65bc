"""A process that has everything imported and forks workers on demand: a dozen of them cost as much as one.

``python -m tests.executing.endings.zygote`` reads one JSON object a line from standard input,
``{"words": [...], "options": {...}, "log": path}``, and answers with the pid of the worker. A gevent worker
must patch the process before anything is imported, so none of those comes from here.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from testproject.celery import app
from tests.crash.zygote import fork, reap


def main() -> None:
    """Serve until standard input ends."""
    app.loader.import_default_modules()
    app.finalize()
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            reap()
            print(work(**json.loads(line)), flush=True)


def work(words: list[str], options: dict[str, Any], log: str) -> int:
    """Fork a worker with these words for the command line and these Celery options; give its pid."""

    def child() -> None:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        app.conf.update(options)
        app.worker_main(words)

    return fork(child)


if __name__ == "__main__":
    main()
