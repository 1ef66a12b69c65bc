"""A process that has everything imported and forks others on demand: milliseconds each, not seconds.

``python -m tests.rig.zygote [module]`` reads one JSON object a line from standard input, ``{"do": name,
...words}``, calls that order with the words, and answers with its value in JSON. The order ``work`` is
known; more come from ``ORDERS`` of the module. It opens no connection itself, so its children share none.
A gevent worker must patch the process before anything is imported, so none of those comes from here.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Never

from testproject.celery import app
from testproject.embedded_redis import die_with_parent

Orders = Mapping[str, Callable[..., Any]]


def main(*modules: str) -> None:
    """Serve until standard input ends."""
    app.loader.import_default_modules()
    app.finalize()
    orders: dict[str, Callable[..., Any]] = {"work": work}
    for module in modules:
        orders |= import_module(module).ORDERS
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            reap()
            order = json.loads(line)
            print(json.dumps(orders[order.pop("do")](**order)), flush=True)


def work(words: list[str], log: str, options: dict[str, Any] | None = None) -> int:
    """Fork a worker with these words for the command line and these Celery options; give its pid."""

    def child() -> None:
        os.setsid()
        write_to(log)
        app.conf.update(options or {})
        app.worker_main(words)

    return fork(child)


def write_to(log: str) -> None:
    """Have this process write into a file."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)


def fork(child: Callable[[], None]) -> int:
    """Run *child* in a process that dies with this one; give its pid."""
    last_wish = die_with_parent()
    pid = os.fork()
    if pid:
        return pid
    _run(child, last_wish)


def status_of(child: Callable[[], None]) -> int:
    """Run *child* in a process of its own, wait for its end; give the exit code, or minus the signal."""
    _, status = os.waitpid(fork(child), 0)
    return os.waitstatus_to_exitcode(status)


def _run(child: Callable[[], None], last_wish: Callable[[], None] | None) -> Never:
    code = 1
    try:
        if last_wish is not None:
            last_wish()
        # Neither end of the pipe is the child's: what it reads or prints must not meet an order.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        child()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def reap() -> None:
    """Take note of the dead."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
