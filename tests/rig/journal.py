"""What really ran: every task of the rig writes its start, its signs of life and its end to a Redis list.

Written by the task bodies in the workers (``recorded``), read by the tests (``Journal``). Times are
``time.monotonic()``, which on one machine is one clock for all processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings

from .waiting import wait_for

TICK = 0.05
"""Seconds between two signs of life of a body that takes its time."""

CLIENT_NAME = "journal"


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a body.

    ``attempt`` counts the starts of this task id, from 1; ``retries`` is Celery's own counter. ``ended`` is
    None for a body that was cut off; ``seen`` is its last sign of life. ``how`` is "returned" or the name
    of the exception that left the body, None without an end. ``note`` is what the body has said of itself.
    """

    number: int
    task: str
    key: str
    id: str
    pid: int
    attempt: int
    retries: int
    redelivered: bool
    started: float
    seen: float
    ended: float | None
    how: str | None
    note: Any = None

    def overlaps(self, other: Run) -> bool:
        """Whether both bodies were alive at one moment; a cut-off one counts until its last sign of life."""
        return self.started < (other.ended or other.seen) and other.started < (self.ended or self.seen)


class Journal:
    """Reads the journal of one namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True, client_name=CLIENT_NAME)
        self._list = f"{namespace}:journal"

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def events(self) -> list[dict[str, Any]]:
        """Give all events in the order in which Redis got them."""
        return [json.loads(line) for line in self._client.lrange(self._list, 0, -1)]

    def runs(self, key: str | None = None, *, task_id: str | None = None) -> list[Run]:
        """Give the runs in order of their start: all, or those of one key or one task id."""
        found: dict[int, dict[str, Any]] = {}
        for event in self.events():
            self.note(event, found)
        return [
            run
            for run in (Run(**values) for values in found.values())
            if (key is None or run.key == key) and (task_id is None or run.id == task_id)
        ]

    @staticmethod
    def note(event: dict[str, Any], runs: dict[int, dict[str, Any]]) -> None:
        """Enter one event into the fields of *runs*, by number."""
        number, at = event["number"], event["at"]
        if event["event"] == "start":
            fields = {name: value for name, value in event.items() if name not in ("event", "at")}
            runs[number] = {**fields, "started": at, "seen": at, "ended": None, "how": None}
        elif event["event"] == "tick":
            runs[number]["seen"] = at
        else:
            runs[number].update(seen=at, ended=at, how=event["how"])

    def ended(self, key: str | None = None) -> list[Run]:
        """Give the runs that came to an end of their own."""
        return [run for run in self.runs(key) if run.ended is not None]

    def overlaps(self, key: str) -> list[tuple[Run, Run]]:
        """Give the pairs of runs of one key that were alive at one moment; right is none."""
        runs = self.runs(key)
        return [(a, b) for at, a in enumerate(runs) for b in runs[at + 1 :] if a.overlaps(b)]

    def wait_for_runs(self, count: int, key: str | None = None, timeout: float = 10.0) -> list[Run]:
        """Wait until *count* bodies have started."""
        return self._wait(self.runs, count, key, timeout, "started")

    def wait_for_ends(self, count: int, key: str | None = None, timeout: float = 10.0) -> list[Run]:
        """Wait until *count* bodies have ended."""
        return self._wait(self.ended, count, key, timeout, "ended")

    def _wait(self, read: Any, count: int, key: str | None, timeout: float, word: str) -> list[Run]:
        wait_for(
            lambda: len(read(key)) >= count,
            timeout,
            what=lambda: f"{count} {word} runs of key {key!r}, there are: {self.runs(key)}",
        )
        runs: list[Run] = read(key)
        return runs


class Recording:
    """The pen of one running body; ``attempt`` counts the starts of its task id, from 1."""

    def __init__(self, request: Any, key: str, note: Any = None) -> None:
        self._client = writer(settings.JOURNAL_URL, os.getpid())
        self._list = f"{settings.TEST_NAMESPACE}:journal"
        self._number = int(self._client.incr(f"{self._list}:numbers"))
        self.attempt = int(self._client.hincrby(f"{self._list}:attempts", request.id, 1))
        self._start(request, key, note)

    def work(self, seconds: float) -> None:
        """Take *seconds*, with a sign of life every ``TICK``."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(TICK, left))
            self.write("tick")

    def write(self, event: str, **values: Any) -> None:
        """Append one event."""
        line = {"event": event, "number": self._number, "at": time.monotonic(), **values}
        self._client.rpush(self._list, json.dumps(line))

    def _start(self, request: Any, key: str, note: Any) -> None:
        self.write(
            "start",
            task=request.task,
            key=key,
            id=request.id,
            pid=os.getpid(),
            attempt=self.attempt,
            retries=request.retries,
            redelivered=bool((request.delivery_info or {}).get("redelivered")),
            note=note,
        )


@contextlib.contextmanager
def recorded(request: Any, key: str, note: Any = None) -> Iterator[Recording]:
    """Write the start and the end of the body of *request*, the ``self.request`` of a bound task."""
    recording = Recording(request, key, note)
    try:
        yield recording
    except BaseException as error:
        recording.write("end", how=type(error).__name__)
        raise
    recording.write("end", how="returned")


@lru_cache(maxsize=2)
def writer(url: str, pid: int) -> redis.Redis:
    """Give this process's client; the pid in the key keeps a forked child off its parent's connection."""
    return redis.Redis.from_url(url, client_name=CLIENT_NAME)
