"""Writing intents into the caller's transaction: rows without a seat, so without a key that blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from django_jobdedup.stores.database.dialect import Dialect
from django_jobdedup.stores.database.line import Sql
from django_jobdedup.stores.database.rows import FRESH
from django_jobdedup.stores.database.statements import TABLE, columns
from django_jobdedup.stores.database.writing import address
from django_jobdedup.stores.requests import Acquire

#: Most rows, and about the most bytes, of one statement.
BATCH: Final = 100
BYTES: Final = 1_000_000

NAMES: Final = (
    "shard", "fingerprint", "key", "job_key", "token", "call",
    *(name for name in FRESH if name != "publish_at"), "created_at", "publish_at",
)  # fmt: skip
#: What a row that exists takes from the new one: a caller may give the id of an ended job again.
TAKEN: Final = ("call", "name", "state", "reason", "attempts", "publish_at", "ended_at", "relay", "copies",
    "mark_by",
)  # fmt: skip


def defer(sql: Sql, requests: Sequence[Acquire], pending: int) -> None:
    """Write intents, in one order for all callers; a row that holds a seat is left as it is."""
    batch: list[Acquire] = []
    size = 0
    for request in sorted(requests, key=lambda request: (request.ref.fingerprint, request.id)):
        if batch and (len(batch) == BATCH or size > BYTES):
            _write(sql, batch, pending)
            batch, size = [], 0
        batch.append(request)
        size += len(request.call or b"")
    if batch:
        _write(sql, batch, pending)


def _write(sql: Sql, batch: list[Acquire], pending: int) -> None:
    words: list[Any] = []
    for request in batch:
        row = {
            **FRESH,
            **address(request.ref.shard, request.ref.fingerprint, request.id),
            "call": request.call,
            "name": request.name,
            "by": request.by,
            "version": 1,
        }
        words += [*(row[name] for name in NAMES[:-2]), pending]
    sql.write(_text(sql.dialect, sql.clock, len(batch)), words)


@lru_cache(64)
def _text(dialect: Dialect, clock: str, number: int) -> str:
    q = dialect.name
    now = f"({clock}) DIV 1000" if dialect.derived else f"({clock}) / 1000"
    row = f"({', '.join(['%s'] * (len(NAMES) - 2))}, {now}, {now} + %s)"
    head = f"INSERT INTO {q(TABLE)} ({columns(dialect, NAMES)}) VALUES {', '.join([row] * number)} "  # noqa: S608
    if dialect.derived:
        free = f"{q('seat')} = ''"
        sets = [f"{q(name)} = IF({free}, VALUES({q(name)}), {q(name)})" for name in TAKEN]
        return f"{head}ON DUPLICATE KEY UPDATE {', '.join(sets)}, {q('version')} = {q('version')} + 1"
    sets = [f"{q(name)} = EXCLUDED.{q(name)}" for name in TAKEN]
    old = f"{q(TABLE)}.{q('version')}"
    return (
        f"{head}ON CONFLICT ({q('fingerprint')}, {q('key')}) DO UPDATE SET {', '.join(sets)}, "
        f"{q('version')} = {old} + 1 WHERE {q(TABLE)}.{q('seat')} = ''"
    )
