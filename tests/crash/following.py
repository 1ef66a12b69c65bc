"""The journal, read on instead of anew: many threads look into it at once."""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.rig.journal import Journal, Run


class FollowedJournal(Journal):
    """A journal that keeps what it has read."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self._guard = threading.Lock()
        self._read: list[dict[str, Any]] = []

    def events(self) -> list[dict[str, Any]]:
        """Give copies of all events; only new ones are fetched."""
        self._read += [json.loads(line) for line in self._client.lrange(self._list, len(self._read), -1)]
        return [dict(event) for event in self._read]

    def runs(self, key: str | None = None, *, task_id: str | None = None) -> list[Run]:
        """Give the runs in order of their start."""
        with self._guard:
            return super().runs(key, task_id=task_id)
