"""A real Celery worker as a subprocess: started, killed, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from testproject.embedded_redis import die_with_parent

from .world import NotPossible

ROOT = Path(__file__).resolve().parent.parent.parent
READY_LINE = " ready."
READY_WITHIN = 30.0
"""Seconds a worker may take until it says that it is ready."""

PROCESSES = 4
"""Pool processes of one worker: so many jobs run at a time."""

GRACE = 5.0
"""Seconds a worker gets to end by itself."""


class Worker:
    """A prefork worker in a process group of its own, which dies with this process; a context manager."""

    def __init__(self, name: str, folder: Path) -> None:
        self._log = folder / f"{name}.log"
        self._deadline = time.monotonic() + READY_WITHIN
        words = ["worker", "--hostname", f"{name}@localhost", "--concurrency", str(PROCESSES)]
        words += ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "testproject", *words],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(folder)},  # a killed worker leaves files there
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the demo, which ends its workers itself
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - one C call
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def is_ready(self) -> bool:
        """Say whether it takes jobs; raises ``NotPossible`` when it has ended or takes too long."""
        if READY_LINE in self.log():
            return True
        if self._process.poll() is not None or time.monotonic() > self._deadline:
            raise NotPossible(f"The worker did not get ready. Its log:\n{self.log()}")
        return False

    def log(self) -> str:
        """Give all it has written."""
        return self._log.read_text(errors="replace")

    def kill(self) -> float:
        """Kill it with all its pool, as a machine that loses power does; gives the moment it was dead."""
        self._kill_group()
        self._process.wait()
        return time.time()

    def end(self) -> None:
        """End it: SIGTERM, after ``GRACE`` seconds SIGKILL. Does nothing when it has ended."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        self._kill_group()
        self._process.wait()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
