"""A strike: kill -9 at a named point, once: of the own process by itself, or of a whole worker by the test.

The plan stands in Redis, by task id; the first to note the strike of a cell strikes, so a process that comes
back passes the same point unharmed. A sender has its plan in its own memory: it does not come back.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import redis
from django.conf import settings

Victim = Literal["process", "worker", "held"]
PATIENCE = 90.0
"""Seconds that a held process waits to be killed by another."""


UNPUBLISHED = ("before acquire", "acquire unread", "after acquire", "after dead row", "before publish")
"""Points at which a sender has sent no message, whatever others have sent by the time of a look."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where to strike.

    ``point`` is the name of a point, ``cell`` the name under which the strike is noted. ``victim``: the
    process that comes by, or the whole worker around it; "held": the process stays where it is until the test
    kills the worker, with all the others that stay in it. ``once``: strike only when this other point was
    passed. ``hold``: whoever comes by this other point waits there for his death.
    """

    cell: str
    point: str
    victim: Victim = "process"
    once: str = ""
    hold: str = ""


@dataclass(slots=True)
class Here:
    """What this process knows of itself: its worker's main process, and the plan of a sender."""

    main: int = 0
    plan: Plan | None = None


here = Here()


def pass_by(point: str, id: str) -> None:
    """Come by a point on the way of a job: does nothing, or never returns."""
    plan = _plan(id)
    if plan is None:
        return
    if point == plan.once:
        _redis().hset(_name("passed"), id, point)
    if point == plan.hold and _is_doomed(plan):
        time.sleep(PATIENCE)
    elif point == plan.point:
        _await(plan, id)
        _strike(plan, id)


def may_go_on(cell: str) -> bool:
    """Say whether the test lets a body go on that waits for what it is to meet."""
    return bool(_redis().hexists(_name("go"), cell))


def aims_at(point: str, id: str) -> bool:
    """Say whether the next pass of this point strikes; for points that need a preparation."""
    plan = _plan(id)
    return plan is not None and plan.point == point


def _plan(id: str) -> Plan | None:
    if here.plan is not None:
        return here.plan
    raw: Any = _redis().hget(_name("plan"), id)
    return Plan(**json.loads(raw)) if raw else None


def _await(plan: Plan, id: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while plan.once and not _redis().hexists(_name("passed"), id):
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def _is_doomed(plan: Plan) -> bool:
    """Whether the worker around this process is the one that will be killed, or is being killed now."""
    raw: Any = _redis().hget(_name("struck"), plan.cell)
    return raw is None or json.loads(raw)["main"] == here.main


def _strike(plan: Plan, id: str) -> None:
    note = {"at": time.monotonic(), "id": id, "pid": os.getpid(), "main": here.main}
    if not _redis().hsetnx(_name("struck"), plan.cell, json.dumps(note)):
        return  # somebody has struck already
    if plan.victim == "held":
        time.sleep(PATIENCE)
    if plan.victim == "worker" and here.main and here.main != os.getpid():
        os.kill(here.main, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _name(what: str) -> str:
    return f"{settings.TEST_NAMESPACE}:crash:{what}"


def _redis() -> redis.Redis:
    return _client(settings.JOURNAL_URL, os.getpid())


@lru_cache(maxsize=2)
def _client(url: str, pid: int) -> redis.Redis:
    """Give this process's client; the pid in the key keeps a forked child off its parent's connection."""
    return redis.Redis.from_url(url, client_name="crash")


@dataclass(frozen=True, slots=True)
class Struck:
    """A strike that was made: ``at`` is ``time.monotonic()``, one clock for all processes of a machine."""

    at: float
    id: str
    pid: int
    main: int


class Planner:
    """The test's side: makes plans, and learns of strikes."""

    def __init__(self, url: str, namespace: str) -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True, client_name="crash")
        self._prefix = f"{namespace}:crash:"

    def plan(self, id: str, plan: Plan) -> None:
        """Have the process killed that comes by."""
        self._client.hset(f"{self._prefix}plan", id, json.dumps(asdict(plan)))

    def go_on(self, cell: str) -> None:
        """Let a body go on."""
        self._client.hset(f"{self._prefix}go", cell, "1")

    def struck(self, cell: str) -> Struck | None:
        """Return the strike of a cell, None before it."""
        raw: Any = self._client.hget(f"{self._prefix}struck", cell)
        return Struck(**json.loads(raw)) if raw else None

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def for_sender(plan: Plan) -> None:
    """Give this process its own plan."""
    here.plan = replace(plan, victim="process")
