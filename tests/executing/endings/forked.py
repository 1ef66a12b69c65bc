"""Workers that a zygote forks, seen from the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from testproject.embedded_redis import die_with_parent
from tests.rig.environment import Environment
from tests.rig.process import READY_WITHIN, ROOT, alive
from tests.rig.waiting import wait_for


class Forked:
    """One worker, like ``tests.rig.worker.Worker``."""

    def __init__(self, name: str, pid: int, log_path: Path) -> None:
        self.name, self.pid, self.log_path = name, pid, log_path

    @property
    def log(self) -> str:
        """All it has written."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def running(self) -> bool:
        """Whether the main process still lives."""
        return alive(self.pid)

    def wait_until_ready(self, timeout: float = READY_WITHIN) -> Self:
        """Wait for the log line that says it is up; raises ``AssertionError`` with the log."""
        wait_for(
            lambda: " ready." in self.log or not self.running,
            timeout,
            every=0.05,
            what=lambda: f"a worker that is ready:\n{self.log}",
        )
        assert self.running, f"it ended before it was ready:\n{self.log}"
        return self

    def terminate(self) -> None:
        """SIGTERM: a warm shutdown."""
        os.kill(self.pid, signal.SIGTERM)

    def quit(self) -> None:
        """SIGQUIT: a cold shutdown."""
        os.kill(self.pid, signal.SIGQUIT)

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory runs out; its children die with it."""
        os.kill(self.pid, signal.SIGKILL)


class Zygote:
    """Forks workers in one world; safe to use from several threads. They die with it.

    ``module`` is what it runs: that reads orders, one JSON object a line, and answers each with a pid.
    """

    def __init__(
        self, environment: Environment, folder: Path, module: str = "tests.executing.endings.zygote"
    ) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        with (folder / "zygote.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=ROOT,
                env=environment.for_process(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - one C call
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Kill the zygote; all its children die with it."""
        self._process.kill()
        self._process.communicate()

    def fork(self, queue: str, pool: str, concurrency: int, options: Mapping[str, Any]) -> Forked:
        """Start a worker over one queue."""
        name, log = f"{queue}@localhost", self._folder / f"{queue}.log"
        words = ["worker", "--hostname", name, "--loglevel", "INFO", "--pool", pool]
        words += [
            "--concurrency",
            str(concurrency),
            "--queues",
            queue,
            "--without-gossip",
            "--without-mingle",
        ]
        return Forked(name, self.order(words=words, options=dict(options), log=str(log)), log)

    def order(self, **order: Any) -> int:
        """Have it fork; give the pid."""
        with self._guard:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, f"the zygote has died: {(self._folder / 'zygote.log').read_text()}"
        return int(line)
