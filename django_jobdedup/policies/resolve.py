"""Which policy holds for one call: the call, then settings, then the task, then the defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final

from django.core.signals import setting_changed

from django_jobdedup.conf import PREFIX, conf
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.fingerprint.key import check_names
from django_jobdedup.policies.layers import Layers, check_defaults
from django_jobdedup.policies.options import UNBUILT, UNSET, Unset
from django_jobdedup.policies.unique import Unique

__all__ = [
    "BYPASS",
    "UNSET",
    "Bypass",
    "Policy",
    "check_against",
    "policy_of",
    "refuse_unbuilt",
    "resolve",
    "settings_entry",
]


class Bypass(Enum):
    """The type of ``BYPASS``."""

    CALL = "call"


#: This call goes past its task's policy, at dispatch and at start; the header must say so.
BYPASS: Final = Bypass.CALL
#: Tasks of Celery and of ours have no policy, whatever a glob says.
PASSING: Final = ("celery.", "django_jobdedup.")

#: What holds for a call that has a policy, or goes past one.
Policy = Unique | Bypass

#: Resolved policies that a process keeps; far more than it has tasks.
_KEPT: Final = 10_000

_WILDCARDS: Final = re.compile(r"\[[^\]]*\]|[*?]")
_cache: dict[tuple[str, int], tuple[object, Unique | None]] = {}


def policy_of(task_name: str, declared: object, override: object = UNSET) -> Policy | None:
    """Return what holds for one call under the settings in force.

    ``declared`` is the task's own ``unique=``, ``override`` the call's. Raises PolicyError.
    """
    if override is UNSET or override is None:
        # The entry keeps `declared` alive, so its id cannot pass to another object.
        kept = _cache.get((task_name, id(declared)))
        return kept[1] if kept is not None else _remember(task_name, declared)
    return resolve(task_name, declared, override, tasks=conf.TASKS, defaults=conf.DEFAULTS)


def _remember(task_name: str, declared: object) -> Unique | None:
    policy = resolve(task_name, declared, UNSET, tasks=conf.TASKS, defaults=conf.DEFAULTS)
    assert not isinstance(policy, Bypass)  # noqa: S101 - only a call can go past its policy
    if len(_cache) >= _KEPT:
        _cache.clear()
    _cache[task_name, id(declared)] = declared, policy
    return policy


def resolve(
    task_name: str,
    declared: object,
    override: object | Unset = UNSET,
    *,
    tasks: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> Policy | None:
    """Put call, settings, task and defaults over each other; None where no policy holds.

    Raises PolicyError, which says where the wrong value stands.
    """
    if override is False:
        return BYPASS
    pattern, said = settings_entry(task_name, tasks)
    layers = Layers().over(declared, f"task {task_name!r}").over(said, f"JOBDEDUP_TASKS[{pattern!r}]")
    if override is not UNSET:
        layers = layers.over(override, f"call of {task_name!r}")
    check_defaults(defaults)
    return layers.policy(defaults, f"policy of {task_name!r}")


def settings_entry(task_name: str, tasks: Mapping[str, Any]) -> tuple[str, object]:
    """Return the entry of ``JOBDEDUP_TASKS`` for a task: its name or glob there, and its ``unique``.

    The exact name wins; else the matching glob with the most characters that are no wildcards, of
    equals the one written first. One entry speaks, the others do not add to it.
    """
    if task_name in tasks:
        return task_name, _unique_of(task_name, tasks[task_name])
    matching = [pattern for pattern in tasks if fnmatchcase(task_name, pattern)]
    if not matching:
        return "", None
    best = max(matching, key=lambda pattern: len(_WILDCARDS.sub("", pattern)))
    return best, _unique_of(best, tasks[best])


def _unique_of(pattern: str, entry: object) -> object:
    where = f"JOBDEDUP_TASKS[{pattern!r}]"
    if not isinstance(entry, Mapping):
        raise PolicyError(f'{where} needs a dict such as {{"unique": True}}, not {entry!r}.')
    _refuse_unbuilt(where, entry)
    for name in entry:
        if name != "unique":
            raise PolicyError(
                f"{where} has the unknown key {name!r}; options stand one level deeper: "
                f'{{"unique": {{{name!r}: ...}}}}.'
            )
    return entry.get("unique")


def refuse_unbuilt(task_name: str, task_object: object, options: Mapping[str, object]) -> None:
    """Refuse ``debounce=`` and ``throttle=`` on a task or a call: they are not built yet.

    ``options`` are the call's; ``task_object`` is None where this process does not know the task.
    Raises PolicyError.
    """
    for name in UNBUILT:
        if getattr(task_object, name, None) or options.get(name):
            _refuse_unbuilt(f"task {task_name!r}", {name: True})


def _refuse_unbuilt(where: str, options: Mapping[str, object]) -> None:
    for name, instead in UNBUILT.items():
        if options.get(name):
            raise PolicyError(f"{where}: {name}= is not built yet; {instead}.")


def check_against(policy: Unique, function: Callable[..., object], task_name: str) -> None:
    """Refuse a key that names arguments which the task does not take.

    ``function`` is the task's ``run``. Raises PolicyError with the names that it takes.
    """
    try:
        check_names(policy.key, function)
    except PolicyError as error:
        raise PolicyError(f"task {task_name!r}: {error}") from None


def _forget(*, setting: str, **_: Any) -> None:
    if setting.startswith(PREFIX):
        _cache.clear()


setting_changed.connect(_forget, dispatch_uid="jobdedup.policies")
