"""The same bytes for ever, in every process, under every hash seed, on every supported Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .golden import kept, made
from .values import printed

ROOT = Path(__file__).parents[2]
PRINT = "from tests.fingerprint.values import printed; print(printed())"


@pytest.mark.parametrize("part", sorted(made()))
def test_format_version_1_is_what_it_was(part: str) -> None:
    """A change of any byte is a new format version: locks held under the old text would not be found."""
    assert made()[part] == kept()[part]


def test_the_golden_file_has_nothing_that_is_no_longer_made() -> None:
    assert made().keys() == kept().keys()


def told(python: str, seed: str) -> str:
    """Return what another interpreter prints, with nothing but this checkout on its path."""
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [python, "-c", PRINT],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_with_another_hash_seed_prints_the_same(seed: str) -> None:
    assert told(sys.executable, seed) == printed()


def test_the_two_hash_seeds_do_order_sets_differently() -> None:
    """Else the test above would show nothing."""
    show = "print(list({'b', 'a', 10, 9, None}), list({str(i) for i in range(20)}))"
    orders = {
        subprocess.run(
            [sys.executable, "-c", show],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(orders) == 2


def interpreter(version: str) -> str:
    """Return an interpreter of that version, from the PATH or from pyenv; skip without one, fail in CI."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        shutil.which(f"python{version}"),
        *map(str, sorted(root.glob(f"versions/{version}.*/bin/python"))),
    ]
    for candidate in candidates:
        if candidate and _runs(candidate, version):
            return candidate
    if os.environ.get("CI"):
        pytest.fail(f"Python {version} is needed in CI")
    pytest.skip(f"Python {version} is not here")


def _runs(python: str, version: str) -> bool:
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", show], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_every_supported_python_prints_the_same(version: str) -> None:
    """Also without Django: the interpreter need not have anything installed."""
    assert json.loads(told(interpreter(version), "7")) == json.loads(printed())


def test_the_room_needs_no_django() -> None:
    """So the other interpreters above can print, and a script may compute fingerprints without a project."""
    check = (
        "import sys; sys.modules['django'] = None\n"
        "from django_jobdedup.fingerprint import binding, canonical, digest, key, scope\n"
        "print(canonical.canonical([1, scope.Scope is None]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", check],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[1,false]", 0), done.stderr
