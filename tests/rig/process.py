"""A subprocess of Celery with a log, a way to know that it is up, and a sure end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import psutil

from testproject.embedded_redis import die_with_parent

from .environment import Environment
from .waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
READY_WITHIN = 20.0
"""Seconds a worker or beat may take until its log says that it is up."""

GRACE = 10.0 if "COVERAGE_PROCESS_CONFIG" in os.environ else 0.0
"""Seconds for a warm shutdown at the end of a test: time for coverage to write, else not worth waiting."""


class CeleryProcess:
    """``python -m celery -A <app> <words>`` in the world of a test.

    ``log`` is what it has written so far. It dies with this process, even by SIGKILL.
    """

    ready_line = ""

    def __init__(self, environment: Environment, app: str, words: list[str], log_path: Path) -> None:
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", app, *words],
                cwd=ROOT,
                env=environment.for_process(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - one C call
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The main process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the main process still lives."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The main process's exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def log(self) -> str:
        """All it has written, standard output and error."""
        return self.log_path.read_text(errors="replace")

    def wait_until_ready(self, timeout: float = READY_WITHIN) -> Self:
        """Wait for the log line that says it is up; raises ``AssertionError`` with the log."""

        def ready() -> bool:
            return self.ready_line in self.log or not self.running

        try:
            wait_for(ready, timeout, every=0.05, what=lambda: f"{self.ready_line!r} in:\n{self.log}")
            assert self.running, f"it ended with {self.exit_code} before it was ready:\n{self.log}"
        except BaseException:
            self.stop()
            raise
        return self

    def wait_for_log(self, text: str, timeout: float = 10.0) -> None:
        """Wait until *text* stands in the log."""
        wait_for(lambda: text in self.log, timeout, what=lambda: f"{text!r} in:\n{self.log}")

    def children(self) -> list[int]:
        """The pids of the direct children: the pool of a prefork worker, oldest first."""
        try:
            found = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []
        return [child.pid for child in sorted(found, key=lambda child: child.create_time())]

    def pids(self) -> list[int]:
        """The main process and its children, while they live."""
        return [self.pid, *self.children()] if self.running else []

    def kill(self) -> None:
        """SIGKILL the main process, as the kernel does when memory runs out; its children die with it."""
        children = self.children()
        self._process.kill()
        self._process.wait()
        self._reap(children)

    def terminate(self) -> None:
        """SIGTERM: a warm shutdown. Returns at once; see ``wait``."""
        self._process.send_signal(signal.SIGTERM)

    def quit(self) -> None:
        """SIGQUIT: a cold shutdown. Returns at once; see ``wait``."""
        self._process.send_signal(signal.SIGQUIT)

    def pause(self) -> None:
        """SIGSTOP the main process: it renews no lease, while its children go on."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT the main process."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout: float = 20.0) -> int:
        """Wait for the end and give the exit code; raises ``AssertionError`` with the log."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout:g} s:\n{self.log}") from None

    def stop(self, grace: float = GRACE) -> None:
        """End it for sure: SIGTERM, and after *grace* seconds SIGKILL. Does nothing when it has ended."""
        if not self.running:
            return
        self.resume()
        if grace:
            self.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
                return
        self.kill()

    def _reap(self, children: list[int]) -> None:
        """Kill what outlived the main process: pool children die by pdeathsig on Linux only."""
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Tell a running process from one that is gone or only waits to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
