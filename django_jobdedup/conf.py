"""Each setting: type, default, one line.

Settings are flat, ``JOBDEDUP_<NAME>`` in the project's settings module, read at first use and kept
until Django's ``setting_changed`` says otherwise, so ``override_settings`` works. ``checks`` reports
wrong values; reading one raises the same sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

PREFIX: Final = "JOBDEDUP_"


#: A number of seconds or a ``timedelta``.
Duration = float | timedelta

#: The longest duration, in seconds: ten years. Beyond lie overflows in Redis and in ``datetime``.
LONGEST: Final = 10 * 365 * 86_400.0


def seconds(value: object) -> float:
    """Turn a number of seconds or a ``timedelta`` into seconds.

    Raises ValueError, with the end of a sentence, for anything else, for a bool, for what is not above
    zero and for more than ten years.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise ValueError(f"needs a number of seconds above 0 or a timedelta, not {value!r}")
    if value > LONGEST:
        raise ValueError(f"needs at most ten years ({LONGEST:.0f} seconds), not {value!r}")
    return float(value)


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"needs one of {', '.join(map(repr, choices))}, not {value!r}")
        return str(value)

    return read


def _between(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"needs a whole number from {low} to {high}, not {value!r}")
        return value

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"needs True or False, not {value!r}")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not value or set(value) & set("{}: \t\n"):
        raise ValueError(f"needs a short text without braces, colons and blanks, not {value!r}")
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"needs a dict with text keys, not {value!r}")
    return value


def _paths(value: object) -> tuple[str, ...]:
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not all(isinstance(p, str) for p in value)
    ):
        raise ValueError(f"needs a list of dotted paths, not {value!r}")
    return tuple(value)


def _callable_or_path(value: object) -> object:
    if not (callable(value) or isinstance(value, str)):
        raise ValueError(f"needs a function without arguments or its dotted path, not {value!r}")
    return value


def _secret(value: object) -> str | bytes | None:
    if value is not None and not (isinstance(value, str | bytes) and value):
        raise ValueError("needs a non-empty text or bytes, or None")
    return value


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, default, reader, kind in words and line for the reference page."""

    name: str
    default: Any
    read: Callable[[object], Any]
    kind: str
    line: str

    @property
    def full_name(self) -> str:
        """Return the name as it stands in a settings module."""
        return PREFIX + self.name

    def value(self) -> Any:
        """Return the value in force.

        Raises ImproperlyConfigured with the sentence that the system check shows.
        """
        raw = getattr(settings, self.full_name, self.default)
        try:
            return self.read(raw)
        except ValueError as error:
            raise ImproperlyConfigured(f"{self.full_name} {error}.") from None


DEFAULT_MIDDLEWARE: Final = (
    "django_jobdedup.middleware.counting.CountingMiddleware",
    "django_jobdedup.middleware.locking.LockingMiddleware",
)

SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("MODE", "enforce", _one_of("enforce", "observe", "off"), '"enforce", "observe" or "off"',
            "`observe` counts and suppresses nothing; `off` takes our options out and locks nothing."),
    Setting("STORES", {}, _mapping, "dict, in the form of `CACHES`",
            "Lock stores by alias; empty: a Redis store on the cache alias `jobdedup`, else `default`."),
    Setting("NAMESPACE", "jd", _name, "text",
            "Prefix of every key: keeps two projects or stages on one Redis apart."),
    Setting("SCOPE", "django_jobdedup.fingerprint.scope.default_tenant", _callable_or_path,
            "function or dotted path",
            'What `scope="tenant"` means: called without arguments at each dispatch.'),
    Setting("TASKS", {}, _mapping, "dict: task name or glob to options",
            'Policies by task name, imported or not: `{"shop.*": {"unique": True}}`.'),
    Setting("DEFAULTS", {}, _mapping, "dict of options",
            "Options of every `Unique` that does not set them itself."),
    Setting("MIDDLEWARE", DEFAULT_MIDDLEWARE, _paths, "list of dotted paths",
            "The middleware; the first is outermost."),
    Setting("REQUIRE_WORKER", True, _flag, "bool",
            "Lock only for queues on which a worker with this app has been seen."),
    Setting("CONFIRM_WITHIN", 15, seconds, "seconds or timedelta",
            "How long a reserved lock waits for the confirmation that its message exists."),
    Setting("SHARDS", 16, _between(1, 100), "int, 1 to 100",
            "Number of hash tags that locks are spread over. Change it only while no lock is held."),
    Setting("GRACE", 86400, seconds, "seconds or timedelta",
            "How long the trace of a lapsed lock stays in the store."),
    Setting("FINGERPRINT_SECRET", None, _secret, "text, bytes or None",
            "Secret of the HMAC, when key names must not be guessable from arguments."),
    Setting("RETENTION", 604800, seconds, "seconds or timedelta",
            "How long the rows of ended jobs and of events stay in the database."),
    Setting("EAGER", "bypass", _one_of("bypass", "enforce"), '"bypass" or "enforce"',
            "Whether calls that run in their caller lock: under always-eager, and by `apply()`."),
    Setting("HISTORY", "abnormal", _one_of("abnormal", "off"), '"abnormal" or "off"',
            "Whether maintenance writes what was abnormal on Redis as `LockEvent` rows."),
)  # fmt: skip

#: Settings of later versions: they do nothing yet.
LATER: Final = ("SHOW_ARGUMENTS",)

BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


class Conf:
    """Read settings as attributes: ``conf.GRACE``."""

    def __getattr__(self, name: str) -> Any:
        # Only a name that is not kept yet comes here: a dispatch reads half a dozen of them.
        try:
            setting = BY_NAME[name]
        except KeyError:
            raise AttributeError(f"there is no setting {PREFIX}{name}") from None
        value = self.__dict__[name] = setting.value()
        return value

    def forget(self, name: str) -> None:
        """Read a setting anew at its next use."""
        self.__dict__.pop(name, None)


conf = Conf()


def _forget(*, setting: str, **_: Any) -> None:
    if setting.startswith(PREFIX):
        conf.forget(setting.removeprefix(PREFIX))


setting_changed.connect(_forget, dispatch_uid="jobdedup.conf")
