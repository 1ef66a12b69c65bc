"""The cells of the matrix: which process dies where, under which lock and ack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.crash.strikes import Victim

CONFIRM_WITHIN, LEASE, VISIBILITY = 2, 2.5, 6
"""Seconds, in the order of their usual sizes: a redelivery comes long after a lease has lapsed."""
LOST_WAIT = 1.0
"""Seconds after which Celery reports a lost pool process; ten by default."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: the place in the page (``table``, ``row``, ``column``) and how it is made.

    ``side``: "sender", "worker" (the victim is a worker of its own) or "pool" (a process in a shared worker's
    pool). ``waits``: the message of a dead sender meets no free worker before its key is free again.
    ``retries``: the job retries once. ``countdown``: seconds to the job's eta; a sender's death before its
    confirm comes first. ``ttl``: shorter than an hour where nothing but the TTL frees the key.
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

    @property
    def next(self) -> float:
        """How long the next call runs: where it runs before a redelivery, until that comes."""
        beside = self.side == "worker" and (self.lock != "until_executed" or self.point == "before ack")
        return VISIBILITY - 1.0 if beside else 1.0

    @property
    def name(self) -> str:
        """A name for people, unique."""
        return f"{self.table}: {self.row}, {self.column}"


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
            yield Cell(table, row, column, "pool", "until_executed", ack, point, "process", once=once)


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
SENDER_UAW = "sender, until_and_while_executing"
SENDER_WE = "sender, while_executing"
WORKER = "worker"
WORKER_UAW = "worker, until_and_while_executing"
WORKER_WE = "worker, while_executing"
POOL = "pool"
RETRY = "retry"
FAR = "far"

CELLS: tuple[Cell, ...] = (
    *sending(SENDER, "until_executed", "acquire", "publish", "confirm"),
    *idle(SENDER),
    *sending(SENDER_UAW, "until_and_while_executing", "after acquire", "after publish", "after confirm"),
    *sending(SENDER_WE, "while_executing", "before publish", "after publish"),
    *working(WORKER, "until_executed", "before reception", "after reception"),
    *acking(WORKER),
    *working(WORKER, "until_executed", "claim"),
    *bodies(WORKER, "until_executed", *BODY),
    *working(WORKER, "until_executed", "finish"),
    *late_acking(WORKER),
    *working(WORKER_UAW, "until_and_while_executing", "before claim", "after claim"),
    *bodies(WORKER_UAW, "until_and_while_executing", BODY[1], BODY[2]),
    *working(WORKER_UAW, "until_and_while_executing", "after finish"),
    *working(WORKER_WE, "while_executing", "before claim", "after claim"),
    *bodies(WORKER_WE, "while_executing", BODY[1], BODY[2]),
    *working(WORKER_WE, "while_executing", "after finish"),
    *pool(POOL),
    *retrying(RETRY),
    *far(FAR),
)
