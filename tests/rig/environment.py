"""The world of one test: a namespace, and the settings that this process and its workers share."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import redis
from celery import Celery
from django.test import override_settings
from kombu import pools

from .results import close, closing_backends


@dataclass(frozen=True, slots=True)
class Environment:
    """Where one test lives.

    ``celery`` holds Celery options by lower-case name, ``settings`` Django settings; both must be JSON.
    """

    namespace: str
    redis_url: str
    celery: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def having(
        self,
        *,
        celery: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Environment:
        """Give a copy with more options; for one worker that differs from the others."""
        return replace(
            self,
            celery={**self.celery, **(celery or {})},
            settings={**self.settings, **(settings or {})},
            variables={**self.variables, **(variables or {})},
        )

    def for_process(self) -> dict[str, str]:
        """Give the environment variables of a subprocess in this world."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "REDIS_URL": self.redis_url,
            "TEST_NAMESPACE": self.namespace,
            "TESTPROJECT_CELERY": json.dumps(dict(self.celery)),
            "TESTPROJECT_SETTINGS": json.dumps(dict(self.settings)),
            **self.variables,
        }

    @contextlib.contextmanager
    def entered(self, app: Celery) -> Iterator[Environment]:
        """Move this process, with its Celery app, into this world, and back at the end."""
        options = self._celery_options()
        before = {name: app.conf.get(name) for name in options}
        # Before 5.6 the prefixed Django setting wins over conf.update(), later it is the other way round.
        prefixed = {f"CELERY_{name.upper()}": value for name, value in options.items()}
        names = {"TEST_NAMESPACE": self.namespace, "JOBDEDUP_NAMESPACE": self.namespace}
        moved = {**prefixed, **names, **self.settings}
        with override_settings(**moved), closing_backends(app):
            app.conf.update(options)
            forget_connections(app)
            try:
                yield self
            finally:
                forget_connections(app)
                app.conf.update(before)

    def clean(self) -> None:
        """Delete the keys of this world, and no other."""
        with redis.Redis.from_url(self.redis_url) as client:
            for key in client.scan_iter(match=f"*{self.namespace}*", count=1000):
                client.unlink(key)

    def _celery_options(self) -> dict[str, Any]:
        prefix = {"global_keyprefix": f"{self.namespace}:"}
        options = {
            "broker_transport_options": {},
            "result_backend_transport_options": {},
            # A test that was killed may have left one; it would win over broker_url.
            "broker_read_url": None,
            "broker_write_url": None,
            **self.celery,
        }
        for name in ("broker_transport_options", "result_backend_transport_options"):
            options[name] = {**prefix, **options[name]}
        return options


def new_namespace() -> str:
    """Make up a namespace below that of the run, so that the run can clean up after a crashed test."""
    return f"{os.environ['TEST_NAMESPACE']}-{secrets.token_hex(4)}"


def forget_connections(app: Celery) -> None:
    """Close what *app* has open, so that the next use connects with the options of that moment.

    Celery has no public call for it; these are the places where 5.5 to 5.7 keep a connection.
    """
    close(app._backend)
    app._backend_cache = None
    app._local.__dict__.pop("backend", None)
    app._pool = None
    app.amqp._producer_pool = None
    for name in {*app.amqp.__dict__.get("queues", ())} - {"celery", app.conf.task_default_queue}:
        del app.amqp.queues[name]  # those that a test has declared
    pools.reset()
