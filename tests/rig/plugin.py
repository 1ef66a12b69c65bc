"""The pytest plugin that starts Redis before Django reads its settings.

pytest-django loads the settings while pytest loads the first conftest, so a fixture would be too late:
a wrapper around that very hook is the first code of ours that runs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator

import pytest
import redis

from testproject.embedded_redis import EmbeddedRedis, GivenRedis, any_redis

SERVER: pytest.StashKey[GivenRedis | EmbeddedRedis] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Start or take a Redis and tell the settings, of this process and of all it starts, where it is."""
    server = any_redis()
    server.__enter__()
    early_config.stash[SERVER] = server
    os.environ["REDIS_URL"] = server.url
    os.environ["TEST_NAMESPACE"] = f"jdtest-{secrets.token_hex(4)}"
    early_config.add_cleanup(lambda: put_away(server))
    yield


def put_away(server: GivenRedis | EmbeddedRedis) -> None:
    """End a server of ours; on somebody else's delete the keys of this run, by name, and nothing more."""
    if isinstance(server, GivenRedis):
        with redis.Redis.from_url(server.url) as client:
            for key in client.scan_iter(match=f"*{os.environ['TEST_NAMESPACE']}*", count=1000):
                client.unlink(key)
    server.__exit__()
