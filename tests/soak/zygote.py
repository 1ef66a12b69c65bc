"""Forks whatever the soak needs.

``python -m tests.soak.zygote`` reads one JSON object a line and answers with a pid:
``{"do": "work" | "call" | "maintain", "words": [...], "log": path}``. A gevent worker must patch the process
before anything is imported, so none of those comes from here.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Final

from testproject.celery import app
from tests.crash.zygote import fork, reap
from tests.soak import caller


def main() -> None:
    """Serve until standard input ends."""
    app.loader.import_default_modules()
    app.finalize()
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            reap()
            print(start(**json.loads(line)), flush=True)


def start(do: str, words: list[str], log: str) -> int:
    """Fork a process that does it; give its pid."""

    def child() -> None:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        ORDERS[do](words)
        os._exit(0)

    return fork(child)


def call(words: list[str]) -> None:
    """Be one of those that call."""
    from django_jobdedup.dispatching.confirm import confirmer

    sys.argv = ["caller", *words]
    caller.main()
    confirmer.flush()  # a forked process leaves without the usual ceremony


def maintain(words: list[str]) -> None:
    """Be the maintenance."""
    from django.core.management import call_command

    call_command("jobdedup", "maintain", "--loop", *words)


ORDERS: Final[dict[str, Callable[[list[str]], None]]] = {
    "work": app.worker_main,
    "call": call,
    "maintain": maintain,
}

if __name__ == "__main__":
    main()
