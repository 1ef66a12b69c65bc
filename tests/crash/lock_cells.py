"""The cells of the tables of all lock types, on all stores with maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from django_jobdedup.lock_types.registry import LOCK_TYPES
from tests.crash.cells import ACKS, BODY, EARLY, LATE, STORES, TOLD, Cell, is_played, rows

TTL: Final = 12.0
"""Seconds; longer than a redelivery and its run take."""
SENDING: Final = ("after acquire", "after publish", "after confirm")
PLAIN: Final = ("before publish", "after publish")
"""Where the sender of a lock dies that is not taken at dispatch."""
POOL: Final = "body, middle, its process alone"


def table(lock: str) -> str:
    """Give the name of the table of a lock type."""
    return f"lock {lock}"


def of_lock(lock: str, column: str, store: str) -> Iterator[Cell]:
    """All cells of a lock type in one column and on one store."""
    ack, name, early = ACKS[column], table(lock), column == EARLY
    kind = LOCK_TYPES[lock]
    ttl = TTL if kind.keeps else None
    for row, point in rows(*(SENDING if kind.at_dispatch else PLAIN)):
        yield Cell(name, f"sender: {row}", column, "sender", lock, ack, point, ttl=ttl, store=store)
    for row, point in [*rows("before claim", "after claim"), *BODY[1:], *rows("after finish")]:
        freed_by_time = early and point == "before claim"
        yield Cell(
            name,
            f"worker: {row}",
            column,
            "worker",
            lock,
            ack,
            point,
            "held",
            once="after ack" if early else "",
            ttl=ttl or (8.0 if freed_by_time else None),
            store=store,
        )
    once = "after ack" if early else ""
    row = f"worker: {POOL}"
    yield Cell(
        name,
        row,
        column,
        "pool",
        lock,
        ack,
        "body middle",
        "process",
        once=once,
        ttl=ttl,
        lease=TOLD,
        store=store,
    )


LOCK_CELLS: Final = tuple(
    cell
    for lock in LOCK_TYPES
    for store in STORES
    for shift, column in enumerate((EARLY, LATE))
    for number, cell in enumerate(of_lock(lock, column, store))
    if is_played(number + shift, store)
)
