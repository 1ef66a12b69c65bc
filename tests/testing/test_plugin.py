"""The pytest plugin: found by pytest, and no burden to a project that does not use it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def test_pytest_finds_it_by_an_entry_point() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared == {"pytest11": {"jobdedup": "django_jobdedup.testkit.plugin"}}


PROJECT = """
import sys

def test_nothing_of_ours_is_loaded():
    assert "django_jobdedup.testkit.plugin" in sys.modules
    assert not [name for name in sys.modules if name.partition(".")[0] in ("django", "celery", "redis")]
"""
ASKING = """
def test_it_is_asked_for(jobdedup):
    pass
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [(PROJECT, "1 passed"), (ASKING, "INSTALLED_APPS, and a Django that is set up")],
    ids=["unused", "without settings"],
)
def test_a_project_without_django_is_left_alone(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "test_project.py").write_text(text)
    plugins = ("-p", "no:django", "-p", "no:jobdedup", "-p", "django_jobdedup.testkit.plugin")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, "test_project.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert said in ended.stdout, ended.stdout + ended.stderr
