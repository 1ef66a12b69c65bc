"""The test's side of the zygote."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from testproject.embedded_redis import die_with_parent
from tests.crash.strikes import Plan
from tests.rig.environment import Environment
from tests.rig.process import ROOT


class Launcher:
    """Forks senders and workers through a zygote; safe to use from several threads."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        with (folder / "zygote.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.zygote"],
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

    def send(self, task: str, args: list[Any], options: dict[str, Any], plan: Plan) -> None:
        """Dispatch in a process of its own that is killed on its way. Raises AssertionError otherwise."""
        answer = self._order(do="send", task=task, args=args, options=options, plan=asdict(plan))
        assert answer["status"] == -9, f"a sender came past {plan.point!r}: {answer}"

    def work(self, queue: str) -> int:
        """Start a worker over one queue; give its pid."""
        log = self.log(queue)
        return int(self._order(do="work", queue=queue, log=str(log))["pid"])

    def log(self, queue: str) -> Path:
        """Where the worker over *queue* writes."""
        return self._folder / f"{queue}.log"

    def _order(self, **order: Any) -> dict[str, Any]:
        with self._guard:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, f"the zygote has died: {(self._folder / 'zygote.log').read_text()}"
        answer: dict[str, Any] = json.loads(line)
        return answer
