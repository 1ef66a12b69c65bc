"""The test's side of a zygote: what it forks, and the workers among that."""

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

from .environment import Environment
from .process import READY_WITHIN, ROOT, alive
from .waiting import wait_for


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
    """Forks in one world; safe to use from several threads. What it has forked dies with it.

    ``orders`` names a module with more orders than ``work``, see ``tests.rig.zygote``.
    """

    def __init__(self, environment: Environment, folder: Path, orders: str = "") -> None:
        self._folder = folder
        self._log = folder / "zygote.log"
        self._guard = threading.Lock()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.rig.zygote", *filter(None, [orders])],
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

    @property
    def log(self) -> str:
        """All that it and its children have written, workers apart."""
        return self._log.read_text(errors="replace")

    def log_of(self, queue: str) -> Path:
        """Where the worker over *queue* writes."""
        return self._folder / f"{queue}.log"

    def order(self, do: str, **words: Any) -> Any:
        """Have an order done and give its answer; raises ``AssertionError`` if the zygote has died."""
        with self._guard:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps({"do": do, **words}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, f"the zygote has died: {self.log}"
        return json.loads(line)

    def work(
        self,
        queue: str,
        *,
        pool: str = "prefork",
        concurrency: int = 1,
        options: Mapping[str, Any] | None = None,
        also: tuple[str, ...] = (),
    ) -> Forked:
        """Start a worker over *queue*, and over the queues of *also*; *options* are Celery's."""
        name, log = f"{queue}@localhost", self.log_of(queue)
        words = ["worker", "--hostname", name, "--loglevel", "INFO", "--pool", pool]
        words += ["--concurrency", str(concurrency), "--queues", ",".join([queue, *also])]
        words += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        pid = self.order("work", words=words, options=dict(options or {}), log=str(log))
        return Forked(name, pid, log)
