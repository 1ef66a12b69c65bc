"""The checks of settings: names, values, and what stands inside them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_jobdedup.checks.ids import SETTING_IDS
from django_jobdedup.checks.messages import Found, error, readable, warning
from django_jobdedup.conf import BY_NAME, LATER, PREFIX, SETTINGS
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.policies.layers import Layers, check_defaults
from django_jobdedup.policies.options import READERS, check_options
from django_jobdedup.policies.resolve import settings_entry
from django_jobdedup.policies.unique import MARK


def check_settings(**_: Any) -> Found:
    """Report each setting with a wrong value."""
    found: Found = []
    for setting in SETTINGS:
        try:
            setting.value()
        except ImproperlyConfigured as wrong:
            found.append(error(SETTING_IDS[setting.name], str(wrong), f"Default: {setting.default!r}."))
    return found


def check_setting_names(**_: Any) -> Found:
    """Report names that begin like ours and mean nothing."""
    names = [name.removeprefix(PREFIX) for name in dir(settings) if name.startswith(PREFIX)]
    return [_meaningless(name) for name in names if name not in BY_NAME]


def _meaningless(name: str) -> checks.CheckMessage:
    if name in LATER:
        return warning("W105", f"{PREFIX}{name} is not built yet: it does nothing.", "Leave it out.")
    # Without the prefix: it would make all names close to each other.
    option = name.lower() in READERS
    close = get_close_matches(name, BY_NAME, n=1, cutoff=0.8 if option else 0.6)
    known = ", ".join(setting.full_name for setting in SETTINGS)
    hint = f"Did you mean {PREFIX}{close[0]}?" if close else f"Known: {known}."
    if option and not close:
        hint = f"An option of all policies is written {PREFIX}DEFAULTS = {{{name.lower()!r}: ...}}."
    return warning("W105", f"There is no setting {PREFIX}{name}: it does nothing.", hint)


def check_task_settings(**_: Any) -> Found:
    """Report entries of ``JOBDEDUP_TASKS`` that are no policies; pairs are checked with the tasks."""
    return [error("E101", wrong) for wrong in wrong_entries().values()]


def wrong_entries() -> dict[str, str]:
    """Return what is wrong in ``JOBDEDUP_TASKS``: task name or glob to a sentence."""
    wrong: dict[str, str] = {}
    for pattern, entry in readable("TASKS").items():
        try:
            _check_entry(pattern, entry)
        except PolicyError as refusal:
            wrong[pattern] = str(refusal)
    return wrong


def _check_entry(pattern: str, entry: object) -> None:
    said = settings_entry(pattern, {pattern: entry})[1]
    where = f"{PREFIX}TASKS[{pattern!r}]"
    Layers().over(said, where)
    if isinstance(said, Mapping) and MARK not in said:
        check_options(said, where)


def check_default_options(**_: Any) -> Found:
    """Report options in ``JOBDEDUP_DEFAULTS`` that do not exist or cannot be defaults."""
    return [error("E102", wrong) for wrong in wrong_defaults().values()]


def wrong_defaults() -> dict[str, str]:
    """Return what is wrong in ``JOBDEDUP_DEFAULTS``: option to a sentence."""
    wrong: dict[str, str] = {}
    for name, value in readable("DEFAULTS").items():
        try:
            check_defaults({name: value})
            check_options({name: value}, f"{PREFIX}DEFAULTS")
        except PolicyError as refusal:
            wrong[name] = str(refusal)
    return wrong


def check_scope(**_: Any) -> Found:
    """Report a ``JOBDEDUP_SCOPE`` that cannot be called without arguments."""
    scope = readable("SCOPE")
    try:
        function = import_string(scope) if isinstance(scope, str) else scope
        inspect.signature(function).bind()
    except ValueError:  # a builtin that does not tell its signature
        return []
    except (ImportError, TypeError) as wrong:
        hint = "Write a function without arguments, or its dotted path, that returns the tenant."
        return [error("E106", f"JOBDEDUP_SCOPE {scope!r} cannot be used: {wrong}.", hint)]
    return []
