"""A project's own tests with the kit, without any server: the examples of the how-to page (case U42)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.test_readme import DOCS, blocks

# Four runs at once, each with processes of its own, in the setup of the first test.
pytestmark = pytest.mark.timeout(120)

SAMPLE = Path(__file__).parent / "sample"
PAGE = DOCS / "how-to" / "test-your-tasks.md"
NOWHERE = "redis://127.0.0.1:1/0"

SHUFFLED = """
import os
import random


def pytest_collection_modifyitems(items):
    random.Random(os.environ["SEED"]).shuffle(items)


def pytest_runtest_setup():
    from django.conf import settings

    assert set(settings.JOBDEDUP_STORES) == {"default", "durable"}, "left by the test before"
    assert "memory" not in str(settings.JOBDEDUP_STORES), "left by the test before"
"""

MIXED = """
import pytest
from reports.tasks import build_report


@pytest.fixture
def expiring(settings):
    settings.JOBDEDUP_DEFAULTS = {"ttl": 60}


def check(jobdedup, settings):
    settings.JOBDEDUP_TASKS = {"reports.*": {"unique": {"ttl": 30}}}
    build_report.delay(42, "2026-08")
    settings.JOBDEDUP_GRACE = 10
    [lock] = jobdedup.locks()
    assert lock.until - lock.since == pytest.approx(30, abs=5)


def test_the_kit_first(jobdedup, settings):
    check(jobdedup, settings)


def test_the_settings_first(settings, jobdedup):
    check(jobdedup, settings)


def test_settings_set_before_and_within(expiring, jobdedup, settings):
    check(jobdedup, settings)


def test_settings_of_a_fixture_hold(expiring, jobdedup):
    build_report.delay(42, "2026-08")
    [lock] = jobdedup.locks()
    assert lock.until - lock.since == pytest.approx(60, abs=5)
"""

EXAMPLES = [text for text in blocks(PAGE.read_text(), "python") if "def test_" in text]


SEEDS = ("1", "2")
DJANGO = ("manage.py", "test", "--parallel", "2", "--shuffle")
# Named only where the package was installed before it had the entry point.
PLUGIN = () if entry_points(group="pytest11", name="jobdedup") else ("-p", "django_jobdedup.testkit.plugin")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN)

#: Alone, and in two processes, of which each has tests of its own.
XDIST = {"1": (), "2": ("-n", "2")}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], str]]:
    """Run the sample with the examples of the page as its tests, twice by each runner, all at once.

    Gives what a runner ("django", "pytest") with a seed has said; raises AssertionError if it failed.
    """
    project = tmp_path_factory.mktemp("project") / "sample"
    shutil.copytree(SAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "conftest.py").write_text(SHUFFLED)
    for number, text in enumerate(EXAMPLES):
        (project / "reports" / f"test_{number}.py").write_text(text)
    (project / "test_mixed.py").write_text(MIXED)
    with ThreadPoolExecutor(4) as pool:
        django = {("django", seed): pool.submit(run, project, seed, *DJANGO, seed) for seed in SEEDS}
        runs = django | {
            ("pytest", seed): pool.submit(run, project, seed, *PYTEST, *XDIST[seed]) for seed in SEEDS
        }
        yield lambda runner, seed: runs[runner, seed].result()


def run(project: Path, seed: str, *words: str) -> str:
    """Run a command in the project, with every server out of reach."""
    ours = ("TEST", "REDIS", "PYTEST", "COV_", "COVERAGE", "DATABASE", "LOCKS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env={
            **environment,
            "REDIS_URL": NOWHERE,
            "DJANGO_SETTINGS_MODULE": "settings_for_tests",
            "SEED": seed,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_the_page_shows_the_tasks_of_its_examples() -> None:
    shown = blocks(PAGE.read_text(), "python")[1]
    assert shown == "# reports/tasks.py\n" + (SAMPLE / "reports" / "tasks.py").read_text()


@pytest.mark.parametrize("seed", SEEDS)
def test_djangos_runner_in_parallel_processes_in_random_order(
    said: Callable[[str, str], str], seed: str
) -> None:
    text = said("django", seed)
    assert f"Ran {sum(example.count('    def test_') for example in EXAMPLES)} tests" in text
    assert f"Using shuffle seed: {seed}" in text
    assert text.count("Cloning test database") == 2, "two processes"
    assert "WARNINGS" not in text, "the checks have nothing to say in tests"
    assert "unavailable" not in text, "nobody has asked the Redis that is not there"


@pytest.mark.parametrize("seed", SEEDS)
def test_pytest_in_random_order(said: Callable[[str, str], str], seed: str) -> None:
    """Once in two processes (pytest-xdist)."""
    text = said("pytest", seed)
    assert ("bringing up nodes" in text) == bool(XDIST[seed])
    assert f"{sum(example.count('def test_') for example in [*EXAMPLES, MIXED])} passed" in text
    assert "unavailable" not in text


def test_the_examples_are_those_of_the_page() -> None:
    assert len(EXAMPLES) == 7
    assert sum("jobdedup" in example for example in EXAMPLES) == 6
