"""Settings of a test under pytest.

A test may set ``settings.X`` (pytest-django's fixture) after the fixture ``jobdedup`` has begun, and the
fixture may end first. Two overrides of Django that do not end in the reverse order bring settings of the
inner one back; so where that fixture is there, it makes all changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.conf import settings as in_force
from django.test.utils import override_settings

from django_jobdedup.conf import BY_NAME, PREFIX

if TYPE_CHECKING:
    import pytest

    from django_jobdedup.testkit.override import Overriding


def overriding(request: pytest.FixtureRequest) -> Overriding:
    """Return what puts settings in force for the test of this request."""
    if not request.config.pluginmanager.has_plugin("django"):
        return lambda named: override_settings(**named)
    fixture = request.getfixturevalue("settings")
    if not type(fixture).__module__.startswith("pytest_django"):  # a fixture of the project's own
        return lambda named: override_settings(**named)
    return lambda named: _set(fixture, named)


@contextmanager
def _set(fixture: Any, named: Mapping[str, Any]) -> Iterator[None]:
    """Set, and set back: the fixture itself forgets its changes later, in one go."""
    before = {name: getattr(in_force, name, BY_NAME[name.removeprefix(PREFIX)].default) for name in named}
    for name, value in named.items():
        setattr(fixture, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(fixture, name, value)
