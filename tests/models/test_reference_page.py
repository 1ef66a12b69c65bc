"""The page of intents names every column and every state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from django_jobdedup.models import Counter, JobIntent, LockEvent, WorkerPresence
from django_jobdedup.models import intent as module
from django_jobdedup.stores.durable import State

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "intents.md"


def first_cells(section: str) -> list[str]:
    """Return the names in the first column of the table of a section."""
    text = PAGE.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_every_column_is_on_the_page_once() -> None:
    columns = [field.name for field in JobIntent._meta.get_fields() if field.name != "id"]
    assert sorted(first_cells("Columns")) == sorted(columns)


def test_every_state_is_on_the_page_in_the_model_and_in_the_contract() -> None:
    assert first_cells("States") == list(module.State.values) == list(get_args(State))


def test_every_other_table_is_on_the_page() -> None:
    tables = [model.__name__ for model in (LockEvent, Counter, WorkerPresence)]
    assert first_cells("Other tables") == tables
