"""The cells of the matrix: which process dies where, under which lock and ack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django_jobdedup.lock_types.registry import LOCK_TYPES
from tests.crash.strikes import Victim

CONFIRM_WITHIN, LEASE, VISIBILITY = 3, 3.5, 6
"""Seconds, in the order of their usual sizes: a redelivery comes long after a lease has lapsed."""
UNATTENDED, REDIS, SQLITE = "default", "redis", "sqlite"
"""Stores by alias. The first is Redis as well, but no maintenance looks after it."""
ENGINES = {SQLITE: "sqlite_wal", "postgresql": "postgresql", "mariadb": "mariadb"}
"""Database stores by alias, and the engine of each."""
STORES = (REDIS, *ENGINES)
"""Those after which the maintenance looks."""
IN_TURN = {"postgresql": 0, "mariadb": 1}
"""Of two databases that must say the same, each plays every second cell: the whole would take too long."""
TOLD = 15.0
"""Seconds; a lease that does not lapse before a loss is told."""
LOST_WAIT = 1.0
"""Seconds after which Celery reports a lost pool process; ten by default."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: the place in the page (``table``, ``row``, ``column``) and how it is made.

    ``side``: "sender", "worker" (the victim is a worker of its own) or "pool" (a process in a shared worker's
    pool). ``waits``: the message of a dead sender meets no free worker before its key is free again.
    ``retries``: the job retries once. ``countdown``: seconds to the job's eta; a sender's death before its
    confirm comes first. ``ttl``: shorter than an hour where nothing but the TTL frees the key. ``lease``:
    longer than usual where a loss is to be told before it lapses.
    """

    table: str
    row: str
    column: str
    side: str
    lock: str
    ack: str
    point: str
    victim: Victim = "worker"
    once: str = ""
    hold: str = ""
    waits: bool = True
    retries: bool = False
    countdown: float = 0.0
    ttl: float | None = None
    lease: float | None = None
    store: str = UNATTENDED

    @property
    def next(self) -> float:
        """How long the next call runs: where it runs before a redelivery, until that comes."""
        free = self.lock not in ("until_executed", "until_expired")
        beside = self.side == "worker" and (free or self.point == "before ack")
        return VISIBILITY - 1.0 if beside else 1.0

    @property
    def gated(self) -> bool:
        """Whether two runs of one lock may not overlap."""
        return LOCK_TYPES[self.lock].gated

    @property
    def keeps(self) -> bool:
        """Whether the lock outlives the run, until its TTL."""
        return LOCK_TYPES[self.lock].keeps

    @property
    def name(self) -> str:
        """A name for people, unique."""
        where = "" if self.store == UNATTENDED else f", {self.store}"
        return f"{self.table}: {self.row}, {self.column}{where}"


EARLY, LATE = "early ack", "late ack"
REJECTED = "late ack, `reject_on_worker_lost`"
ACKS = {EARLY: "early", LATE: "late", REJECTED: "late, rejected"}
WORDS = {
    "before": "before the {}",
    "unread": "{} done, reply not read",
    "after": "after the {}",
}


def rows(*steps: str) -> Iterator[tuple[str, str]]:
    """Give (row, point) for "acquire" (all three points) or "after acquire" (this one)."""
    for step in steps:
        first, _, rest = step.partition(" ")
        whens = [first] if rest else list(WORDS)
        name = rest or first
        for when in whens:
            row = WORDS[when].format(name)
            yield row, f"{name} unread" if when == "unread" else f"{when} {name}"


def sending(table: str, lock: str, *steps: str) -> Iterator[Cell]:
    """The process that dispatches dies."""
    for row, point in rows(*steps):
        for column in (EARLY, LATE):
            yield Cell(table, row, column, "sender", lock, ACKS[column], point)


def idle(table: str) -> Iterator[Cell]:
    """The same, but a worker takes the message at once."""
    for column in (EARLY, LATE):
        row = "after the publish, a worker is free"
        yield Cell(table, row, column, "sender", "until_executed", ACKS[column], "after publish", waits=False)


def acking(table: str) -> Iterator[Cell]:
    """The main process dies around an early ack, which goes side by side with the claim."""
    lock, early = "until_executed", ACKS[EARLY]
    row = "before the ack, {}"
    hold = "before claim"
    yield Cell(table, row.format("not claimed"), EARLY, "worker", lock, early, "before ack", hold=hold)
    yield Cell(
        table, row.format("body running"), EARLY, "worker", lock, early, "before ack", once="body start"
    )
    row = "after the ack, not claimed"
    yield Cell(table, row, EARLY, "worker", lock, early, "after ack", hold=hold, ttl=8.0)


def working(table: str, lock: str, *steps: str) -> Iterator[Cell]:
    """The whole worker dies; with early ack after its ack."""
    for row, point in rows(*steps):
        yield working_cell(table, lock, row, point, EARLY)
        yield working_cell(table, lock, row, point, LATE)


def working_cell(table: str, lock: str, row: str, point: str, column: str) -> Cell:
    """One cell of ``working``."""
    in_pool = "reception" not in point and point != "after ack"
    early = column == EARLY and in_pool
    waits_for_ttl = early and point in ("before claim",) and lock != "while_executing"
    return Cell(
        table,
        row,
        column,
        "worker",
        lock,
        ACKS[column],
        point,
        "held" if in_pool else "worker",
        once="after ack" if early else "",
        ttl=8.0 if waits_for_ttl else None,
    )


def late_acking(table: str) -> Iterator[Cell]:
    """The main process dies around a late ack."""
    for row, point in rows("before ack", "after ack"):
        yield Cell(table, row, LATE, "worker", "until_executed", "late", point)


BODY = (("body, start", "body start"), ("body, middle", "body middle"), ("body, end", "body end"))


def bodies(table: str, lock: str, *points: tuple[str, str]) -> Iterator[Cell]:
    """The whole worker dies within the body."""
    for row, point in points:
        yield working_cell(table, lock, row, point, EARLY)
        yield working_cell(table, lock, row, point, LATE)


def pool(table: str) -> Iterator[Cell]:
    """One process of the pool dies, its worker lives on; with early ack after its ack."""
    steps = [*rows("before claim", "after claim"), *BODY[1:], *rows("before finish", "after finish")]
    for row, point in steps:
        for column, ack in ACKS.items():
            once = "after ack" if column == EARLY else ""
            lease = None if column == REJECTED else TOLD
            yield Cell(
                table, row, column, "pool", "until_executed", ack, point, "process", once=once, lease=lease
            )


def retrying(table: str) -> Iterator[Cell]:
    """The whole worker dies while its body publishes a retry."""
    for row, point in rows("acquire", "publish", "finish"):
        for column in (EARLY, LATE):
            once = "after ack" if column == EARLY else ""
            ttl = (
                8.0
                if column == EARLY and point in ("acquire unread", "after acquire", "before publish")
                else None
            )
            yield Cell(
                table,
                row,
                column,
                "worker",
                "until_executed",
                ACKS[column],
                point,
                "held",
                once=once,
                retries=True,
                ttl=ttl,
            )


def far(table: str) -> Iterator[Cell]:
    """The sender dies before its confirm, then the worker that holds the message until its eta."""
    for row, point in rows("confirm"):
        for column in (EARLY, LATE):
            yield Cell(table, row, column, "worker", "until_executed", ACKS[column], point, countdown=8.0)


SENDER = "sender"
WORKER = "worker"
POOL = "pool"
RETRY = "retry"
FAR = "far"

CELLS: tuple[Cell, ...] = (
    *sending(SENDER, "until_executed", "acquire", "publish", "confirm"),
    *idle(SENDER),
    *working(WORKER, "until_executed", "before reception", "after reception"),
    *acking(WORKER),
    *working(WORKER, "until_executed", "claim"),
    *bodies(WORKER, "until_executed", *BODY),
    *working(WORKER, "until_executed", "finish"),
    *late_acking(WORKER),
    *pool(POOL),
    *retrying(RETRY),
    *far(FAR),
)


def is_played(number: int, store: str) -> bool:
    """Say whether the cell with this number in its store's list is played there."""
    return store not in IN_TURN or number % len(IN_TURN) == IN_TURN[store]
