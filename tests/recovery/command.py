"""``manage.py jobdedup`` as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from testproject.embedded_redis import die_with_parent
from tests.rig.environment import Environment
from tests.rig.process import ROOT


def start(environment: Environment, *words: str, command: str = "jobdedup") -> subprocess.Popen[str]:
    """Start a management command in the world of a test."""
    return subprocess.Popen(
        [sys.executable, "-m", "django", command, *words],
        cwd=ROOT,
        env={**environment.for_process(), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - one C call
    )


def run(environment: Environment, *words: str, command: str = "jobdedup") -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = start(environment, *words, command=command)
    out, err = process.communicate(timeout=30)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def shell(environment: Environment, code: str) -> str:
    """Run a few lines of Python in the project; give what they print."""
    ended = run(environment, "--verbosity", "0", "-c", code, command="shell")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def lines(text: str) -> list[dict[str, Any]]:
    """Read what ``--json`` writes."""
    return [json.loads(line) for line in text.splitlines()]
