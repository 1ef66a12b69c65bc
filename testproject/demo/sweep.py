"""The broker's sweep for messages that a dead worker has left, where kombu comes too seldom for a demo."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

OWN_PACE = (5, 7)
"""From this kombu on a worker sweeps at the pace of its transport options; before, every 100 seconds."""

EVERY = 1.0
"""Seconds between two sweeps."""


class Sweep:
    """Does with an older kombu what its workers do, only sooner; nothing with a newer one."""

    def __init__(self) -> None:
        self._needed = tuple(map(int, version("kombu").split(".")[:2])) < OWN_PACE
        self._done_at = 0.0

    def if_due(self) -> None:
        """Put back what was handed out longer than the visibility timeout ago."""
        if not self._needed or time.monotonic() - self._done_at < EVERY:
            return
        self._done_at = time.monotonic()
        from testproject.celery import app

        with app.connection_for_write() as connection:
            channel: Any = connection.default_channel
            channel.qos.restore_visible(num=1000, interval=1)
