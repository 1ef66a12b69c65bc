"""Run Python in a process of its own, in the world of a test."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

from tests.rig.environment import Environment
from tests.rig.process import ROOT

PREAMBLE = """
import json
def tell(value):
    print("TELL" + json.dumps(value), flush=True)
def seen(result):
    return [str(result.outcome), result.duplicate, result.id, result.fingerprint]
"""


SETUP = """
import django
django.setup()
"""


def run_python(
    environment: Environment, source: str, *, timeout: float = 30.0, setup: bool = True
) -> list[Any]:
    """Run *source*, after ``django.setup()``, and give what it ``tell()``s; its failure is the test's."""
    before = SETUP if setup else ""
    done = subprocess.run(
        [sys.executable, "-c", before + PREAMBLE + textwrap.dedent(source)],
        cwd=ROOT,
        env=environment.for_process(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"it ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    lines = done.stdout.splitlines()
    return [json.loads(line.removeprefix("TELL")) for line in lines if line.startswith("TELL")]
