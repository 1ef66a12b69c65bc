"""README, tutorial and the other pages say what is so: commands, tables, examples, links."""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import current_app

import django_jobdedup
from django_jobdedup.lock_types.registry import LOCK_TYPES
from django_jobdedup.outcomes import Outcome
from django_jobdedup.strategies.registry import STRATEGIES, strategy
from django_jobdedup.strategies.wait import Wait
from testproject.embedded_redis import EmbeddedRedis, die_with_parent

from .rig.environment import Environment
from .rig.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
FENCE = re.compile(
    r"^```(?:\{code-block\} )?(?P<language>\w+)\n(?::caption: (?P<file>\S+)\n\n)?(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [found["text"] for found in FENCE.finditer(text) if found["language"] == language]


def first_column(text: str, heading: str) -> list[str]:
    """The first column of the table whose header row begins with *heading*, without marks."""
    rows = text.split(f"| {heading} |")[1].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    return [row.split("|")[1].strip() for row in rows]


def ticked(cell: str) -> str:
    """The first name in backticks, without quotes."""
    return re.findall(r"`\"?([^`\"]+)\"?`", cell)[0]


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len(README.splitlines()) < 200


def test_the_test_command_is_one_line_and_the_same_in_readme_contributing_and_ci() -> None:
    command = next(block for block in blocks(README, "console") if "runtests.py" in block)
    assert command.count("\n") == 1
    assert command in (ROOT / "CONTRIBUTING.md").read_text()
    assert command in (ROOT / ".ci" / "run").read_text()


def test_the_demo_command_is_one_line_and_the_same_in_readme_and_tutorial() -> None:
    command = next(block for block in blocks(README, "console") if "testproject.demo" in block)
    assert command.count("\n") == 1
    assert command in (DOCS / "tutorial" / "the-shop.md").read_text()


def test_the_commands_upgrade_pip_before_they_need_it() -> None:
    """The pip inside Python 3.11 knows no ``--group``."""
    for command in blocks(README, "console"):
        assert command.index("install -q -U pip") < command.index("install -q -e")


def test_the_readme_tables_have_every_lock_type_and_every_strategy() -> None:
    assert {ticked(cell) for cell in first_column(README, "lock type")} == set(LOCK_TYPES)
    written = {ticked(cell) for cell in first_column(README, "`on_conflict`")}
    assert {strategy(name).name for name in written - {"Wait(5)"}} | {Wait.name} == set(STRATEGIES)


def test_the_readme_example_is_true(celery_env: Environment) -> None:
    """Its task is declared and called as it stands there."""
    source = next(block for block in blocks(README, "python") if "@shared_task" in block)
    module = types.ModuleType("reports.tasks")
    exec(compile(source, "README.md", "exec"), module.__dict__)
    try:
        run_doctest(blocks(README, "pycon")[0], {"build_report": module.build_report})
    finally:
        current_app.tasks.pop("reports.tasks.build_report")


def run_doctest(text: str, names: dict[str, object]) -> None:
    """Run the lines of a ``pycon`` block; raises ``AssertionError`` with what differs."""
    test = doctest.DocTestParser().get_doctest(text, dict(names), "example", None, None)
    assert test.examples
    said: list[str] = []
    failed = doctest.DocTestRunner(verbose=False).run(test, out=said.append).failed
    assert not failed, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not re.match(r"https?:", target):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_are_python(page: Path) -> None:
    """A decorator alone, or several without their functions, stand for themselves in our examples."""
    for block in blocks(page.read_text(), "python"):
        compile(completed(block), str(page), "exec")


def completed(block: str) -> str:
    """Give each decorator that does not stand over a function one of its own."""
    lines = block.splitlines()
    for at, line in enumerate(lines):
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if line.startswith("@") and not re.match(r"def |async def |class |\s", following):
            lines[at] = f"{line}\ndef _(): ..."
    return "\n".join(lines)


def test_the_api_page_has_every_public_name() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    assert {ticked(cell) for cell in first_column(page, "name")} == set(django_jobdedup.__all__)


def test_the_results_page_has_every_outcome() -> None:
    page = (DOCS / "reference" / "results.md").read_text()
    rows = page.split("| outcome |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert {ticked(name): duplicate for name, duplicate, *_ in cells} == {
        outcome.value: f"`{outcome.duplicate}`" for outcome in Outcome
    }


@pytest.fixture
def mysite(tmp_path: Path, lock_server: EmbeddedRedis) -> Path:
    """The project of the tutorial, made by its own steps, on a Redis of this test."""
    run_python("-m", "django", "startproject", "mysite", ".", folder=tmp_path)
    run_python("manage.py", "startapp", "reports", folder=tmp_path)
    for found in FENCE.finditer(first_steps()):
        if found["file"]:
            text = found["text"].replace("127.0.0.1:6379", f"127.0.0.1:{lock_server.port}")
            path = tmp_path / found["file"]
            with path.open("a" if path.name == "settings.py" else "w") as file:
                file.write(text)
    return tmp_path


def first_steps() -> str:
    return (DOCS / "tutorial" / "first-steps.md").read_text()


def run_python(*words: str, folder: Path) -> str:
    """Run Python in the project; gives what it printed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def clean_environment() -> dict[str, str]:
    """The environment of a user: nothing of the rig in it."""
    ours = ("REDIS_URL", "TEST_NAMESPACE", "DJANGO_SETTINGS_MODULE")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "mysite.settings"}


SHELL = """
import doctest, django
django.setup()
test = doctest.DocTestParser().get_doctest({text!r}, {{}}, "shell", None, None)
assert not doctest.DocTestRunner(verbose=False).run(test).failed
"""


@contextlib.contextmanager
def worker_of(project: Path) -> Iterator[None]:
    """The worker that the tutorial starts, up and ready."""
    log = project / "worker.log"
    command = re.findall(r"^python (-m celery .*)$", first_steps(), re.MULTILINE)[0].split()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=project,
            env=clean_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - one C call
        )
    try:
        wait_for(lambda: " ready." in log.read_text(), 30, what=log.read_text)
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.worker
@pytest.mark.slow
def test_the_first_steps_lead_to_a_suppressed_duplicate(mysite: Path) -> None:
    page = first_steps()
    command, output = re.findall(r"^\$ python (.*)\n(.*)\n", page, re.MULTILINE)[0]
    assert run_python(*command.split(), folder=mysite).strip() == output
    with worker_of(mysite):
        run_python("-c", SHELL.format(text="\n".join(blocks(page, "pycon"))), folder=mysite)
