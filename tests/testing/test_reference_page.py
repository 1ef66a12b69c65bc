"""The page of the kit says what the code says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from django_jobdedup import testing
from django_jobdedup.stores.record import State
from django_jobdedup.testing import HeldLock, Kit, PendingCall, override_jobdedup
from django_jobdedup.testkit.locks import STATES
from tests.test_readme import DOCS

PAGE = (DOCS / "reference" / "testing.md").read_text()


def first_cells(heading: str, head: str) -> list[str]:
    """The names in the first column of the table below a heading whose head row begins so."""
    table = PAGE.split(heading)[1].split(f"| {head}".rstrip())[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def bare(function: Callable[..., Any]) -> str:
    """A signature without annotations, as the page writes it."""
    signature = inspect.signature(function)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def test_it_lists_what_the_kit_gives() -> None:
    kit = Kit()
    public = [name for name in vars(Kit) if not name.startswith("_") and name != "listening"]
    assert first_cells("## The kit", "|") == [
        f"clock.advance{bare(kit.clock.advance)}",
        *(f"{name}{bare(getattr(kit, name))}" for name in public),
    ]


def test_it_lists_the_fields_of_a_held_lock_and_of_a_pending_call() -> None:
    assert first_cells("`HeldLock` is frozen", "field") == [field.name for field in fields(HeldLock)]
    line = next(line for line in PAGE.splitlines() if line.startswith("`PendingCall`"))
    assert re.findall(r"`(\w+)`", line)[1:] == [field.name for field in fields(PendingCall)]


def test_it_names_the_states() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `state` |"))
    assert re.findall(r'"(\w+)"', row) == list(STATES.values())
    assert set(STATES) == set(State.__args__)  # type: ignore[attr-defined]


def test_it_shows_the_signature_of_the_override() -> None:
    shown = bare(override_jobdedup.__init__).replace("(self, *unasked", "(*").replace("'", '"')
    assert f"`override_jobdedup{shown}`" in PAGE


def test_every_public_name_is_on_the_page() -> None:
    assert [name for name in testing.__all__ if f"`{name}" not in PAGE and name != "Kit"] == []
