"""The workers, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testproject.embedded_redis import EmbeddedRedis, GivenRedis

from .troupe import Troupe, troupe


@pytest.fixture(scope="package")
def players(
    redis_server: GivenRedis | EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Troupe]:
    """One worker of each pool."""
    with troupe(redis_server.url, tmp_path_factory.mktemp("endings")) as players:
        yield players
