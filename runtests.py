#!/usr/bin/env python
"""Run the test suite in parallel; words of your own go to pytest: ``runtests.py tests/test_rig.py -x``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: The exit code for tests that have failed; others are for runs that could not be made.
FAILED = 1
ROOT = Path(__file__).resolve().parent
#: A file stays in one process: its tests share workers. Most of them wait most of the time, so there are
#: more processes than cores.
PROCESSES = min((os.cpu_count() or 2) + 1, 4)
PARALLEL = (f"--numprocesses={PROCESSES}", "--dist=loadfile", "--no-loadscope-reorder")


def main() -> int:
    """Run what was asked for, or everything; give the exit code."""
    if len(sys.argv) > 1:
        return pytest(*sys.argv[1:])
    return twice(*PARALLEL, marks="not alone") or twice(marks="alone")


def twice(*words: str, marks: str) -> int:
    """Run the tests with these marks; what fails is run once more by itself, and fails if it does again.

    The tests kill, pause and time real processes: beside others, on a busy machine, a moment comes late.
    """
    code = pytest(*words, "-m", marks)
    if code != FAILED:
        return code
    print("== once more, one by one: what has failed above", flush=True)
    return pytest("--last-failed", "--last-failed-no-failures=none", "-m", marks)


def pytest(*words: str) -> int:
    """Run pytest in the root of the repository and give its exit code."""
    return subprocess.call([sys.executable, "-m", "pytest", *words], cwd=ROOT)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
