"""One world with one worker for the tests of the canvas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.rig.sharing import diary, key, node, world  # noqa: F401 - fixtures

from . import tasks

#: Seconds for which a test waits for what must come.
WAIT = 30


@pytest.fixture(scope="module")
def for_world() -> Mapping[str, Any]:
    """The Celery options of the worlds of this folder."""
    return {"imports": [tasks.MODULE], "worker_lost_wait": 0.5}


@pytest.fixture(scope="module")
def for_node() -> Mapping[str, Any]:
    """The options of the workers of this folder."""
    return {"concurrency": 6}
