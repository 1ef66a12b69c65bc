#!/usr/bin/env python
"""Run the test suite; extra words go to pytest: ``python runtests.py tests/test_rig.py -x``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> int:
    """Run pytest in the root of the repository and give its exit code."""
    return subprocess.call([sys.executable, "-m", "pytest", *sys.argv[1:]], cwd=ROOT)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
