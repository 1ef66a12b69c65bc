"""Case U40: every form of a canvas with equal members comes to its end, under each mode."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from tests.rig.journal import Journal
from tests.rig.process import ROOT
from tests.rig.worker import Worker

from . import tasks
from .conftest import WAIT
from .forms import FORMS, MODES, Story

pytestmark = [pytest.mark.worker, pytest.mark.timeout(120)]

Told = dict[tuple[str, str], tuple[str, Story]]


@pytest.fixture(scope="module")
def told(node: Worker) -> Told:
    """Every form under every mode, started at once."""
    stories: Told = {}
    for mode, task in MODES.items():
        for name, form in FORMS.items():
            key = f"{mode}-{secrets.token_hex(4)}"
            stories[mode, name] = (key, form.start(task, key))
    return stories


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORMS)
def test_it_comes_to_its_end(told: Told, diary: Journal, mode: str, name: str) -> None:
    key, story = told[mode, name]
    form = FORMS[name]
    values = story.values([_value(result) for result in story.results])
    for callback in story.callbacks:
        assert len(diary.wait_for_ends(1, callback, WAIT)) == 1
    runs = diary.runs(key)
    assert diary.overlaps(key) == []
    made = [f"{key} by {run.id}" for run in runs]
    assert len(values) == form.calls
    if mode == "follow":
        assert len(runs) == 1
        assert values == made * form.calls
    elif mode == "run":
        assert len(runs) == form.calls
        assert sorted(values) == sorted(made)
    else:
        assert len(runs) == 1
        assert sorted(values, key=str) == sorted([*made, *[None] * (form.calls - 1)], key=str)


def _value(result: Any) -> Any:
    return result.get(timeout=WAIT)


def test_chunks_are_plain_calls_of_one_message_and_all_run(node: Worker, key: str) -> None:
    parts = tasks.drawing.chunks([(key,)] * 4, 2).apply_async().get(timeout=WAIT)
    assert [len(part) for part in parts] == [2, 2]
    assert len({number for part in parts for number in part}) == 4


def test_the_page_of_the_canvas_lists_every_form() -> None:
    rows = {
        cells[0]: cells[1:]
        for line in (ROOT / "docs/reference/canvas.md").read_text().splitlines()
        if line.startswith("| ") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 5
    }
    assert rows.pop("form") == ["equal calls", *(f"`{mode}`" for mode in MODES)]
    rows.pop("---")
    assert rows == {name: [str(form.calls), "1", str(form.calls), "1"] for name, form in FORMS.items()}
