"""The cells of the tables of all strategies: two equal calls meet, and a process dies over it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from django_jobdedup.lock_types.registry import LOCK_TYPES
from tests.crash.cells import ACKS, EARLY, LATE, STORES, is_played, rows
from tests.crash.strikes import Victim

OPTIONS: Final[dict[str, Any]] = {
    "reschedule": ["reschedule", {"after": 1, "up_to": 1}],
    "wait": ["wait", {"seconds": 2, "then": ["reschedule", {"after": 1, "up_to": 1}]}],
}
"""Strategies whose pauses are too long for a test by default."""
FAR: Final = 12.0
"""Seconds until a job is due that is not due soon."""
TTL: Final = 8.0
"""Seconds, where a worker with early ack dies with a message that only the TTL misses."""

Older = Literal["waits", "runs", "is due later", "is due sooner"]
Dies = Literal["sender", "older", "newcomer"]


@dataclass(frozen=True, slots=True)
class Encounter:
    """One cell: the place in the page (``table``, ``row``, ``column``) and how it is made.

    ``older`` is what the older job does when the newcomer comes. ``dies``: the sender of the newcomer, the
    worker that runs the older job, or the one that is about to start the newcomer. ``joined``: the newcomer
    comes before that worker does. ``wakes``: the point is about the newcomer, not about the older job.
    """

    table: str
    row: str
    column: str
    store: str
    lock: str
    strategy: str
    older: Older
    dies: Dies
    point: str
    joined: bool = False
    wakes: bool = False

    @property
    def ack(self) -> str:
        """How the task is acked."""
        return ACKS[self.column]

    @property
    def side(self) -> str:
        """Which process dies, in the words of the other tables."""
        return "sender" if self.dies == "sender" else "worker"

    @property
    def victim(self) -> Victim:
        """How."""
        return "process" if self.dies == "sender" else "held"

    @property
    def once(self) -> str:
        """What has to be passed before."""
        return "after ack" if self.side == "worker" and self.column == EARLY and not self.wakes else ""

    @property
    def ttl(self) -> float | None:
        """The TTL of both jobs, seconds; None for the usual one."""
        return TTL if self.column == EARLY and self.dies == "newcomer" else None

    @property
    def on_conflict(self) -> Any:
        """The strategy as it is written."""
        written = OPTIONS.get(self.strategy, self.strategy)
        both = len(LOCK_TYPES[self.lock].conflicts) > 1
        return {"execution": written} if both and self.dies == "newcomer" else written

    @property
    def unique(self) -> dict[str, Any]:
        """The options of the policy that come with each call."""
        options = {"store": self.store, "on_conflict": json.loads(json.dumps(self.on_conflict))}
        return {**options, "ttl": self.ttl} if self.ttl else options

    @property
    def gated(self) -> bool:
        """Whether two runs of one lock may not overlap."""
        return LOCK_TYPES[self.lock].gated

    @property
    def name(self) -> str:
        """A name for people, unique."""
        return f"{self.table}: {self.row}, {self.column}, {self.store}"


REFUSING, REPLACE, SOONEST, RERUN = "refusing", "replace", "keep_soonest", "rerun"
STARTS: Final = {lock: f"at a start, {lock}" for lock in ("while_executing", "until_and_while_executing")}
DONE: Final = ("after acquire", "after publish", "after confirm")

Row = tuple[str, str, str, str, Older, Dies, str]
"""Table, row, lock, strategy, what the older job does, who dies, where."""


def refusing() -> Iterator[Row]:
    """The sender of a call dies that is refused."""
    asked = [("skip", "after acquire"), ("log", "after acquire"), ("raise", "after acquire")]
    asked += [("reject", "after acquire"), ("reject", "after dead row")]
    asked += [("reschedule", "after acquire"), ("reschedule", "after publish")]
    for strategy, step in asked:
        for row, point in rows(step):
            said = f"`{strategy}`, {row}"
            yield REFUSING, said, "until_executed", strategy, "waits", "sender", point


def sending(table: str, strategy: str, older: Older, steps: tuple[str, ...] = DONE) -> Iterator[Row]:
    """The sender of a call dies that is accepted beside another, or joins it."""
    for row, point in rows(*steps):
        yield table, f"the older {older}, {row}", "until_executed", strategy, older, "sender", point


def starting(lock: str) -> Iterator[Row]:
    """The worker dies that is about to start a job while an equal one runs."""
    asked = [("skip", "after claim"), ("skip", "after withdraw"), ("log", "after withdraw")]
    asked += [("reject", "after claim"), ("reject", "after dead row"), ("reject", "after withdraw")]
    asked += [("reschedule", "before publish"), ("reschedule", "after publish"), ("wait", "before hold")]
    for strategy, step in asked:
        for row, point in rows(step):
            said = f"`{strategy}`, {'while it waits' if strategy == 'wait' else row}"
            yield STARTS[lock], said, lock, strategy, "runs", "newcomer", point


ROWS: Final[tuple[Row, ...]] = (
    *refusing(),
    *sending(REPLACE, "replace", "waits"),
    *sending(REPLACE, "replace", "runs"),
    *sending(SOONEST, "keep_soonest", "is due later"),
    *sending(SOONEST, "keep_soonest", "is due sooner", ("after acquire",)),
    *sending(RERUN, "rerun", "waits", ("after acquire",)),
    *sending(RERUN, "rerun", "runs"),
    *(row for lock in STARTS for row in starting(lock)),
)
RUNS: Final = (
    ("it was joined: body, middle", "body middle", True, False),
    ("another waits: body, middle", "body middle", False, False),
    ("another waits: before the finish", "before finish", False, False),
    ("another waits: after the finish, before the wake", "before wake", False, True),
    ("another waits: after the wake", "after wake", False, True),
)
"""Where the worker dies that runs a job under ``rerun``: row, point, joined, wakes."""


def of_store(store: str, column: str) -> Iterator[Encounter]:
    """All cells of one store and column."""
    for table, row, lock, strategy, older, dies, point in ROWS:
        yield Encounter(table, row, column, store, lock, strategy, older, dies, point)
        if (table, older, point) == (RERUN, "runs", "after confirm"):
            for said, where, joined, wakes in RUNS:
                yield Encounter(
                    RERUN, f"its worker, {said}", column, store, lock, strategy, "runs", "older", where,
                    joined, wakes,
                )  # fmt: skip


ENCOUNTERS: Final = tuple(
    cell
    for store in STORES
    for shift, column in enumerate((EARLY, LATE))
    for number, cell in enumerate(of_store(store, column))
    if is_played(number + shift, store)
)
