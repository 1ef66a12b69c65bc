"""A real beat process with a schedule of its own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .environment import Environment
from .process import CeleryProcess

WITHOUT_TASKS = "tests.jobs.bare"
"""An app with the same settings that imports no task: beat then sends by name."""


class Beat(CeleryProcess):
    """Beat over *schedule*: names to ``{"task": ..., "schedule": seconds, "args": [...]}``, all JSON.

    Its scheduler keeps its file in *folder*. ``app=WITHOUT_TASKS`` gives a beat that knows no task.
    """

    ready_line = "beat: Starting..."

    def __init__(
        self,
        environment: Environment,
        folder: Path,
        schedule: Mapping[str, Mapping[str, Any]],
        *,
        app: str = "testproject",
    ) -> None:
        name = f"beat-{uuid.uuid4().hex[:8]}"
        scheduled = environment.having(celery={"beat_schedule": schedule, "beat_max_loop_interval": 0.2})
        words = ["beat", "--loglevel", "INFO", "--schedule", str(folder / f"{name}.db"), "--pidfile="]
        super().__init__(scheduled, app, words, folder / f"{name}.log")
