"""The world of one demo: a Redis, a folder with the database, settings; gone at the end."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

import redis

from testproject.embedded_redis import EmbeddedRedis, GivenRedis, NoRedis, any_redis

VISIBILITY_TIMEOUT = 3
"""Seconds after which the broker hands a killed worker's message to another; Celery's default is 3600."""

LEASE = 2
"""Seconds for which a running job holds its lock without a sign of life; the app's default is 30."""

RECOMPUTE_SECONDS = 0.8
"""How long one recomputation takes."""


class NotPossible(RuntimeError):  # noqa: N818 - a fact
    """The demo cannot be played here; the message says why."""


class World:
    """Everything that the demo needs around it; a context manager.

    ``folder`` is a temporary one, ``namespace`` is in the name of every key. With ``REDIS_URL`` the server
    is somebody else's: then the keys of the namespace are deleted, and nothing else is touched.
    """

    def __init__(self) -> None:
        self.namespace = f"jddemo-{secrets.token_hex(4)}"
        self.server = _redis()
        self.folder = Path(tempfile.mkdtemp(prefix="jobdedup-demo-"))

    def __enter__(self) -> Self:
        try:
            self.server.__enter__()
            self._ping()
            os.environ.update(self._variables())
            _set_up_django()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete keys and files and end a server of ours."""
        if isinstance(self.server, GivenRedis):
            with contextlib.suppress(redis.RedisError):
                self._delete_keys()
        self.server.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    def messages(self) -> int:
        """Count the messages that the broker holds: queued, or handed out and not acked."""
        with redis.Redis.from_url(self.server.url) as client:
            queued, unacked = f"{self.namespace}:celery", f"{self.namespace}:unacked"
            return int(client.llen(queued)) + int(client.hlen(unacked))

    def described(self) -> str:
        """Say which Redis it is."""
        kind = "yours, by REDIS_URL" if isinstance(self.server, GivenRedis) else "a private one"
        with redis.Redis.from_url(self.server.url) as client:
            return f"Redis {client.info('server')['redis_version']} ({kind})"

    def _ping(self) -> None:
        try:
            with redis.Redis.from_url(self.server.url, socket_connect_timeout=3, socket_timeout=3) as client:
                client.ping()
        except redis.RedisError as error:
            raise NotPossible(f"The Redis at {self.server.url} does not answer: {error}") from error

    def _delete_keys(self) -> None:
        with redis.Redis.from_url(self.server.url) as client:
            for key in client.scan_iter(match=f"*{self.namespace}*", count=1000):
                client.unlink(key)

    def _variables(self) -> dict[str, str]:
        """The environment of this process and its workers; options that are set already win."""
        return {
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "REDIS_URL": self.server.url,
            "LOCKS_REDIS_URL": self.server.url,
            "DATABASE_PATH": str(self.folder / "shop.sqlite3"),
            "TESTPROJECT_CELERY": _over(self._celery(), "TESTPROJECT_CELERY"),
            "TESTPROJECT_SETTINGS": _over(self._settings(), "TESTPROJECT_SETTINGS"),
        }

    def _celery(self) -> dict[str, Any]:
        prefix = {"global_keyprefix": f"{self.namespace}:"}
        redelivery = {
            "visibility_timeout": VISIBILITY_TIMEOUT,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "unacked_mutex_expire": 5,
        }
        return {
            "broker_transport_options": {**prefix, **redelivery},
            "result_backend_transport_options": prefix,
            "task_acks_late": True,
            "worker_prefetch_multiplier": 1,
        }

    def _settings(self) -> dict[str, Any]:
        tasks = ("testproject.shop.tasks.recompute_tenant", "testproject.shop.tasks.build_report")
        return {
            "JOBDEDUP_NAMESPACE": self.namespace,
            "JOBDEDUP_TASKS": {task: {"unique": {"lease": LEASE}} for task in tasks},
            "SHOP_RECOMPUTE_SECONDS": RECOMPUTE_SECONDS,
        }


def _redis() -> GivenRedis | EmbeddedRedis:
    try:
        return any_redis()
    except NoRedis as error:
        raise NotPossible(str(error)) from error


def _over(ours: dict[str, Any], variable: str) -> str:
    return json.dumps({**ours, **json.loads(os.environ.get(variable, "{}"))})


def _set_up_django() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
