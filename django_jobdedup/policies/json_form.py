"""The JSON form of an option's value."""

from __future__ import annotations

from typing import Any

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.policies.conflicts import BothSides
from django_jobdedup.strategies.base import Strategy


def plain(option: str, value: object) -> Any:
    """Return the value in types that JSON has. Raises PolicyError where it has no such form."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return [plain(option, each) for each in value]
    if isinstance(value, Strategy | BothSides):
        return value.encode()
    what = "a function" if callable(value) else f"the constant {value!r}"
    raise PolicyError(
        f"Unique option {option} holds {what}, which has no JSON form. Declare it on the task or in "
        f"JOBDEDUP_TASKS, and override other options of one call in a dict."
    )
