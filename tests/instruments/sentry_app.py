"""The Celery app of a project with Sentry, set up in its settings: before Django and this app."""

from __future__ import annotations

from typing import Any

import sentry_sdk
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

SENT: list[Any] = []


class Collecting(Transport):
    """Keeps what would go over the network."""

    def capture_envelope(self, envelope: Any) -> None:
        """Keep it."""
        SENT.append(envelope)


sentry_sdk.init(
    dsn="http://key@127.0.0.1:9/1",
    transport=Collecting,
    traces_sample_rate=1.0,
    integrations=[CeleryIntegration(monitor_beat_tasks=True, propagate_traces=True)],
)

from testproject.celery import app  # noqa: E402, F401
