"""Known mistakes of a store on a database, planted one at a time: which function to spoil, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from django_jobdedup.stores.database import statements, verbs, view, writing
from django_jobdedup.stores.database.changes import Comparison
from django_jobdedup.stores.database.line import Sql

Patch = pytest.MonkeyPatch
EXCLUSIVE = ("until_executed", "until_executed, two seats", "until_expired")


@dataclass(frozen=True)
class DatabaseMutant:
    """One planted mistake; ``policies`` narrows the walk to where it can show at all."""

    name: str
    plant: Callable[[Patch], None]
    policies: tuple[str, ...] = ()
    late: tuple[bool, ...] = (False, True)


def spoiled(module: Any, name: str, old: str, new: str) -> Callable[[Patch], None]:
    """Return what replaces a piece of the text that a function makes; it must be in it."""
    made = getattr(module, name)

    def plant(patch: Patch) -> None:
        def other(*args: Any, **named: Any) -> str:
            text: str = made(*args, **named)
            assert old in text, f"{name} no longer has {old!r}"
            return text.replace(old, new)

        patch.setattr(module, name, other)

    return plant


def written_otherwise(module: Any, old: str, new: str) -> Callable[[Patch], None]:
    """Return what replaces a piece of a statement that a function of ``module`` sends."""

    def plant(patch: Patch) -> None:
        class Spoiled(Sql):
            def write(self, text: str, words: list[Any]) -> int:
                return super().write(text.replace(old, new) if module in text else text, words)

        patch.setattr("django_jobdedup.stores.database.line.Sql", Spoiled)

    return plant


def without(name: str, answer: Any) -> Callable[[Patch], None]:
    """Return what makes a method of the comparison answer always the same."""
    return lambda patch: patch.setattr(Comparison, name, lambda *_: answer)


def sweeps_blindly(patch: Patch) -> None:
    """Free a dead row whatever has become of it."""
    write_one = writing.write_one

    def blind(sql: Sql, looked: view.View, change: Any, seen: Any = None) -> None:
        if change.row.id and change.columns.get("seat") == "" and change.columns.get("state") == "lost":
            text = statements.update(sql.dialect, tuple(change.columns), None)
            text = text.replace('AND "version" = %s', "AND %s >= 0")
            sql.write(text, [*change.columns.values(), change.row.id, change.row.version])
        else:
            write_one(sql, looked, change, seen)

    patch.setattr(writing, "write_one", blind)


def decides_on_the_old(patch: Patch) -> None:
    """Take a conflict for a success: the answer stands, though nothing was written."""
    write = writing.write

    def careless(*args: Any) -> None:
        try:
            write(*args)
        except Exception:
            return

    patch.setattr(verbs, "write", careless)


def sees_only_itself(patch: Patch) -> None:
    """Read one's own row and no other."""
    look = view.look

    def blinkered(sql: Sql, ref: Any, token: str, **more: Any) -> view.View:
        looked = look(sql, ref, token, **more)
        return replace(looked, rows={t: row for t, row in looked.rows.items() if t == token})

    patch.setattr(verbs, "look", blinkered)


def no_fence(patch: Patch) -> None:
    """Forget the last fence."""
    look = view.look
    patch.setattr(verbs, "look", lambda *args, **more: replace(look(*args, **more), fence=0))


VERSION = ('AND "version" = %s', 'AND "version" >= %s')

MUTANTS = (
    DatabaseMutant("no version check", spoiled(statements, "update", *VERSION)),
    DatabaseMutant("no key on waiting", without("_waits", False), EXCLUSIVE),
    DatabaseMutant("no key on run", without("_runs", False)),
    DatabaseMutant("sweep without condition", sweeps_blindly),
    DatabaseMutant("a conflict is a success", decides_on_the_old),
    DatabaseMutant("others are not seen", sees_only_itself, EXCLUSIVE),
    DatabaseMutant("no fence", no_fence),
    DatabaseMutant(
        "confirm whatever the seat", written_otherwise("'published'", "(\"seat\" = 'P' OR", "(true OR")
    ),
    DatabaseMutant(
        "renew whatever the nonce", written_otherwise('"lease" =', 'AND "nonce" = %s', "AND %s <> ''"),
        late=(True,),
    ),
)  # fmt: skip
