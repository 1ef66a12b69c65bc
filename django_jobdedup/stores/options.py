"""What ``OPTIONS`` of ``JOBDEDUP_STORES`` may say: how long a store that failed is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from django_jobdedup.conf import seconds
from django_jobdedup.stores.breaker import MAX_PAUSE, PAUSE
from django_jobdedup.suggestion import suggest

DEFAULTS: Final = {"pause": PAUSE, "max_pause": MAX_PAUSE}


def read_pauses(alias: str, options: Mapping[str, Any] | None) -> tuple[float, float]:
    """Return ``pause`` and ``max_pause``, seconds. Raises ImproperlyConfigured."""
    where = f"JOBDEDUP_STORES[{alias!r}]"
    if not isinstance(options or {}, Mapping):
        raise ImproperlyConfigured(f"{where}: OPTIONS needs a dict, not {options!r}.")
    found = dict(DEFAULTS)
    for name, value in (options or {}).items():
        if name not in DEFAULTS:
            raise ImproperlyConfigured(f"{where}: there is no option {name!r}; {suggest(name, DEFAULTS)}")
        try:
            found[name] = seconds(value)
        except ValueError as error:
            raise ImproperlyConfigured(f"{where}: the option {name} {error}.") from None
    if "max_pause" not in (options or {}):
        found["max_pause"] = max(found["max_pause"], found["pause"])
    if found["pause"] > found["max_pause"]:
        raise ImproperlyConfigured(
            f"{where}: the option pause is {found['pause']:g} seconds, above max_pause, the longest: "
            f"write max_pause={found['pause']:g} or more."
        )
    return found["pause"], found["max_pause"]
