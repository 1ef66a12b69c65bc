"""The pytest plugin: the fixture ``jobdedup``.

pytest loads this in every project that has the package installed, so it imports nothing before the
fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_jobdedup.testkit.kit import Kit


@pytest.fixture
def jobdedup(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Locks of this test's own, in memory: ``.clock``, ``.outcomes()``, ``.starts()``, ``.locks()``."""
    from django_jobdedup.testkit.override import kit_of_a_test
    from django_jobdedup.testkit.pytest_settings import overriding

    with kit_of_a_test(overriding(request), {}) as kit:
        yield kit
