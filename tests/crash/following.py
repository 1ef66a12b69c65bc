"""The journal, read on instead of anew: many threads look into it at once."""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.rig.journal import Journal, Run


class FollowedJournal(Journal):
    """A journal that keeps what it has read, by key."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self._guard = threading.Lock()
        self._length = 0
        self._runs: dict[int, dict[str, Any]] = {}
        self._keys: dict[str, list[int]] = {}

    def runs(self, key: str | None = None, *, task_id: str | None = None) -> list[Run]:
        """Give the runs of one key in order of their start; only new events are fetched."""
        with self._guard:
            self._read_on()
            found = self._runs if key is None else self._keys.get(key, ())
            runs = [Run(**self._runs[number]) for number in found]
        return [run for run in runs if task_id is None or run.id == task_id]

    def _read_on(self) -> None:
        lines = self._client.lrange(self._list, self._length, -1)
        self._length += len(lines)
        for line in lines:
            event = json.loads(line)
            self.note(event, self._runs)
            if event["event"] == "start":
                self._keys.setdefault(event["key"], []).append(event["number"])
