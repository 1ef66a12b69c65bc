"""The pytest plugin that starts Redis before Django reads its settings.

pytest-django loads the settings while pytest loads the first conftest, so a fixture would be too late:
a wrapper around that very hook is the first code of ours that runs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
import redis

if TYPE_CHECKING:
    from testproject.embedded_redis import EmbeddedRedis, GivenRedis

#: Set where this run starts a server; each process of a parallel run then starts one for itself.
OWN = "TESTS_START_REDIS"
SERVER: pytest.StashKey[GivenRedis | EmbeddedRedis] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Start or take a Redis and tell the settings, of this process and of all it starts, where it is."""
    # testproject.celery names its own settings when nobody has; so ours must stand before its import.
    os.environ["DJANGO_SETTINGS_MODULE"] = early_config.getini("DJANGO_SETTINGS_MODULE")
    from testproject.embedded_redis import any_redis

    if os.environ.get(OWN):  # a process of a parallel run: MONITOR of one must not see the others
        del os.environ["REDIS_URL"]
    elif "REDIS_URL" not in os.environ:
        os.environ[OWN] = "1"
    server = any_redis()
    server.__enter__()
    early_config.stash[SERVER] = server
    os.environ["REDIS_URL"] = server.url
    os.environ["TEST_NAMESPACE"] = f"jdtest-{secrets.token_hex(4)}"
    early_config.add_cleanup(lambda: put_away(server))
    yield


def put_away(server: GivenRedis | EmbeddedRedis) -> None:
    """Delete the keys of this run, by name, where the server stays; end a server of ours."""
    from testproject.embedded_redis import GivenRedis

    if isinstance(server, GivenRedis):
        with redis.Redis.from_url(server.url) as client:
            for key in client.scan_iter(match=f"*{os.environ['TEST_NAMESPACE']}*", count=1000):
                client.unlink(key)
    server.__exit__()
