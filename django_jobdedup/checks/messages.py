"""What every check is made of: messages under our ids, and settings that can be read."""

from __future__ import annotations

from typing import Any, Final

from django.core import checks, mail
from django.core.exceptions import ImproperlyConfigured

from django_jobdedup.conf import BY_NAME, conf

TAG: Final = "jobdedup"
Found = list[checks.CheckMessage]


def error(number: str, message: str, hint: str | None = None) -> checks.CheckMessage:
    """Return an error under the id ``jobdedup.<number>``."""
    return checks.Error(message, hint=hint, id=f"{TAG}.{number}")


def warning(number: str, message: str, hint: str | None = None) -> checks.CheckMessage:
    """Return a warning under the id ``jobdedup.<number>``."""
    return checks.Warning(message, hint=hint, id=f"{TAG}.{number}")


def readable(name: str) -> Any:
    """Return a setting, or its default where the value is reported by ``check_settings``."""
    try:
        return getattr(conf, name)
    except ImproperlyConfigured:
        return BY_NAME[name].default


def in_tests() -> bool:
    """Say whether Django's test runner or pytest-django is at work.

    Both turn ``DEBUG`` off and run the checks; ``mail.outbox`` is what Django documents as being there then.
    """
    return hasattr(mail, "outbox")
