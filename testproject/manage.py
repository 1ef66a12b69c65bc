#!/usr/bin/env python
"""Django's command line for the shop."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Python put this folder first on the path, where our celery.py would hide Celery itself.
sys.path[0] = str(Path(__file__).resolve().parent.parent)


def main() -> None:
    """Run one management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
