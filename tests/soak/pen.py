"""The journal of the soak: bodies append lines to a file, which costs microseconds and outlives a kill.

Times are ``time.monotonic()``, one clock for all processes of a machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from celery.exceptions import Retry

TICK: Final = 0.02
"""Seconds between two signs of life of a body that takes its time."""
GOT, START, SIGN, END = "got", "start", "sign", "end"


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a body.

    ``stamp`` is that of the call whose arguments it has. ``ended`` is None for a body that was killed;
    ``seen`` is its last sign of life. ``how`` is "returned" or the name of what left the body, and ``whole``
    says that this was an end of its own, success or failure.
    """

    kind: str
    key: str
    id: str
    stamp: int
    worker: str
    redelivered: bool
    started: float
    seen: float
    ended: float | None = None
    how: str = ""
    whole: bool = False

    @property
    def lock(self) -> tuple[str, str]:
        """What its lock is on."""
        return self.kind, self.key


class Pen:
    """Writes one run."""

    def __init__(self, path: str) -> None:
        self._file = opened(path, os.getpid())
        self._run = f"{os.getpid()}.{time.monotonic_ns()}"

    def write(self, what: str, *words: Any) -> None:
        """Append one line, in one piece: other processes write to the same file."""
        os.write(self._file, json.dumps([what, self._run, time.monotonic(), *words]).encode() + b"\n")

    def work(self, seconds: float) -> None:
        """Take some seconds, with signs of life."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(TICK, left))
            if left > TICK:
                self.write(SIGN)


@contextlib.contextmanager
def recorded(path: str, request: Any, kind: str, key: str, stamp: int) -> Iterator[Pen]:
    """Write the start and the end of the body of *request*."""
    pen = Pen(path)
    redelivered = bool((request.delivery_info or {}).get("redelivered"))
    pen.write(START, kind, key, request.id, stamp, request.hostname, redelivered)
    try:
        yield pen
    except BaseException as error:
        pen.write(END, type(error).__name__, isinstance(error, Exception) and not isinstance(error, Retry))
        raise
    pen.write(END, "returned", True)


@lru_cache(maxsize=2)
def opened(path: str, pid: int) -> int:
    """Open the file once a process; the pid keeps a forked child from sharing nothing but the file."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def read(path: Path) -> list[Run]:
    """Give all runs in the order of their starts."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        what, run, at, *words = json.loads(line)
        if what == GOT:
            continue  # for people who look for a message
        if what == START:
            kind, key, id, stamp, worker, redelivered = words
            found[run] = {"kind": kind, "key": key, "id": id, "stamp": stamp, "worker": worker}
            found[run] |= {"redelivered": redelivered, "started": at, "seen": at}
        elif what == SIGN:
            found[run]["seen"] = at
        else:
            found[run] |= {"seen": at, "ended": at, "how": words[0], "whole": words[1]}
    return sorted((Run(**values) for values in found.values()), key=lambda run: run.started)
