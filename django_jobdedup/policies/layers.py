"""Three places that speak of one task's policy, put over each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.policies.unique import MARK, Unique

#: Options that ``JOBDEDUP_DEFAULTS`` cannot set, with the reason.
NO_DEFAULT: Final = {"lock_name": "every task would share one lock; write it on the tasks that shall"}


@dataclass(frozen=True, slots=True)
class Layers:
    """What has been said so far, lowest place first: a switch and options."""

    on: bool = False
    options: Mapping[str, Any] | None = None

    def over(self, said: object, where: str) -> Layers:
        """Put one place over the lower ones.

        None says nothing; True and False turn on and off and keep the options; an instance replaces
        them; a dict turns on and overrides option by option. Raises PolicyError, which names ``where``.
        """
        if said is None:
            return self
        if isinstance(said, bool):
            return replace(self, on=said)
        if isinstance(said, Unique):
            return Layers(True, said.options())
        if not isinstance(said, Mapping):
            raise PolicyError(f"{where}: {_wrong(said)}")
        if MARK in said:
            return Layers(True, _from(said, where).options())
        return Layers(True, {**(self.options or {}), **said})

    def policy(self, defaults: Mapping[str, Any], where: str) -> Unique | None:
        """Return the policy that results; None where it is off. Raises PolicyError."""
        if not self.on:
            return None
        return _from({**defaults, **(self.options or {})}, where)


def check_defaults(defaults: Mapping[str, Any]) -> None:
    """Refuse what cannot be a default of every policy. Raises PolicyError."""
    for name, reason in NO_DEFAULT.items():
        if name in defaults:
            raise PolicyError(f"JOBDEDUP_DEFAULTS cannot set {name}: {reason}.")


def _from(options: Mapping[str, Any], where: str) -> Unique:
    try:
        return Unique.from_json(options)
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None


def _wrong(said: object) -> str:
    if said is Unique:
        return "unique= is the class Unique; write unique=Unique() or unique=True."
    if isinstance(said, list | tuple) and all(isinstance(each, Unique | Mapping | bool) for each in said):
        return (
            "unique= is one policy, and a task has one lock: several policies on one task are not built yet. "
            "Write the one that matters most, or call a second task with a policy of its own in the body."
        )
    return f"unique= needs True, False, a dict of options or a Unique, not {said!r}."
