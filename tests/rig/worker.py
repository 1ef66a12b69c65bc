"""A real Celery worker as a subprocess."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterable
from pathlib import Path

from .environment import Environment
from .process import CeleryProcess


class Worker(CeleryProcess):
    """One worker node with a name of its own, over the queues it is given.

    ``pool`` is prefork, solo, threads or gevent; ``options`` are more words for the command line.
    """

    ready_line = " ready."

    def __init__(
        self,
        environment: Environment,
        folder: Path,
        *,
        app: str = "testproject",
        pool: str = "prefork",
        concurrency: int = 2,
        queues: Iterable[str] = ("celery",),
        options: Iterable[str] = (),
    ) -> None:
        self.name = f"rig-{uuid.uuid4().hex[:8]}@localhost"
        words = ["worker", "--hostname", self.name, "--loglevel", "INFO", "--pool", pool]
        words += ["--concurrency", str(concurrency), "--queues", ",".join(queues)]
        # One node alone has nobody to greet; mingle would cost a second of every start.
        words += ["--without-gossip", "--without-mingle", *options]
        super().__init__(environment, app, words, folder / f"{self.name}.log")

    def kill_child(self, pid: int | None = None) -> int:
        """SIGKILL one pool child, *pid* or the oldest, and give its pid."""
        victim = pid if pid is not None else self.children()[0]
        os.kill(victim, signal.SIGKILL)
        return victim
