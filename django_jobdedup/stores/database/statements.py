"""The statements, as text: one to read what a decision rests on, one to insert, one to update."""

from __future__ import annotations

from functools import lru_cache

from django_jobdedup.models import JobIntent
from django_jobdedup.stores.database.dialect import Dialect
from django_jobdedup.stores.database.rows import COLUMNS

TABLE = JobIntent._meta.db_table


@lru_cache(64)
def columns(dialect: Dialect, names: tuple[str, ...] = COLUMNS) -> str:
    """Return quoted names."""
    return ", ".join(dialect.name(name) for name in names)


@lru_cache(64)
def read(dialect: Dialect, clock: str, *, fence: bool) -> str:
    """Read the clock, the last fence, the rows with a seat, and one's own row without one.

    Words: fingerprint, fingerprint, key, and fingerprint once more with ``fence``. One arm for each
    index; the last row holds the clock and, where the first column of a row stands, the fence.
    """
    q = dialect.name
    fields = f"{columns(dialect)}, {q('call')} IS NOT NULL"
    table, own = q(TABLE), f"{q('fingerprint')} = %s"
    last = f"(SELECT MAX({q('fence')}) FROM {table} WHERE {own})" if fence else "0"  # noqa: S608
    nulls = ", NULL" * len(COLUMNS)
    return (
        f"SELECT {clock}, {fields} FROM {table} WHERE {own} AND {q('attention')} >= 0 UNION ALL "  # noqa: S608
        f"SELECT {clock}, {fields} FROM {table} WHERE {own} AND {q('key')} = %s "
        f"AND {q('attention')} IS NULL UNION ALL SELECT {clock}, {last}{nulls}"
    )


@lru_cache(64)
def read_held(dialect: Dialect, clock: str, number: int) -> str:
    """Read the clock, the fingerprint and the columns of every row with a seat. Words: fingerprints."""
    q = dialect.name
    return (
        f"SELECT {clock}, {q('fingerprint')}, {columns(dialect)}, {q('call')} IS NOT NULL "  # noqa: S608
        f"FROM {q(TABLE)} WHERE {q('fingerprint')} IN ({among(number)}) AND {q('attention')} >= 0"
    )


@lru_cache(64)
def read_many(dialect: Dialect, clock: str, locks: int, owns: int) -> str:
    """Read as ``read``, for many locks. Words: fingerprints, then fingerprint and key of each own row."""
    q = dialect.name
    fields = f"{q('fingerprint')}, {columns(dialect)}, {q('call')} IS NOT NULL"
    own = " OR ".join([f"{q('fingerprint')} = %s AND {q('key')} = %s"] * owns)
    nulls = ", NULL" * (len(COLUMNS) + 2)
    return (
        f"{read_held(dialect, clock, locks)} UNION ALL "  # noqa: S608
        f"SELECT {clock}, {fields} FROM {q(TABLE)} WHERE ({own}) AND {q('attention')} IS NULL UNION ALL "
        f"SELECT {clock}{nulls}"
    )


@lru_cache(256)
def insert(dialect: Dialect, names: tuple[str, ...], guarded: int | None) -> str:
    """Insert a row; with a guard (see ``guard``) only where nobody has changed what was read."""
    head = f"INSERT INTO {dialect.name(TABLE)} ({columns(dialect, names)}) "
    values = ", ".join(["%s"] * len(names))
    if guarded is None:
        return f"{head}VALUES ({values})"
    return f"{head}SELECT {values}{dialect.nothing} WHERE {guard(dialect, guarded)}"


@lru_cache(64)
def insert_many(dialect: Dialect, names: tuple[str, ...], number: int) -> str:
    """Insert rows."""
    row = f"({', '.join(['%s'] * len(names))})"
    return (
        f"INSERT INTO {dialect.name(TABLE)} ({columns(dialect, names)}) "  # noqa: S608
        f"VALUES {', '.join([row] * number)}"
    )


@lru_cache(64)
def held(dialect: Dialect, number: int) -> str:
    """Read fingerprint, id, version and token of every row with a seat. Words: fingerprints."""
    q = dialect.name
    return (
        f"SELECT {columns(dialect, ('fingerprint', 'id', 'version', 'token'))} FROM {q(TABLE)} "  # noqa: S608
        f"WHERE {q('fingerprint')} IN ({among(number)}) AND {q('attention')} >= 0"
    )


@lru_cache(1024)
def update(dialect: Dialect, names: tuple[str, ...], guarded: int | None) -> str:
    """Update a row that still has the version that was read. Words: values, id, version, guard."""
    q = dialect.name
    sets = "".join(f"{q(name)} = %s, " for name in names)
    also = "" if guarded is None else f" AND {guard(dialect, guarded)}"
    return (
        f"UPDATE {q(TABLE)} SET {sets}{q('version')} = {q('version')} + 1 "  # noqa: S608
        f"WHERE {q('id')} = %s AND {q('version')} = %s{also}"
    )


@lru_cache(64)
def guard(dialect: Dialect, seen: int) -> str:
    """Return a condition: no row of the lock has a seat but those seen, and they are as they were.

    Words: fingerprint, then id and version of each. A unique column does not say that alone where a lock
    may have more waiting seats than its limit: between the reading and the writing the seat that one
    takes may have been taken, passed on and freed again by somebody who let in another beside it.
    """
    q = dialect.name
    known = " OR ".join([f"{q('id')} = %s AND {q('version')} = %s"] * seen)
    other = f" AND NOT ({known})" if seen else ""
    held = f"{q('fingerprint')} = %s AND {q('attention')} >= 0"
    if not dialect.derived:
        return f"NOT EXISTS (SELECT 1 FROM {q(TABLE)} WHERE {held}{other})"  # noqa: S608
    # DISTINCT keeps MySQL from merging it into the statement, which may not read its own table.
    inner = f"SELECT DISTINCT {q('id')} FROM {q(TABLE)} WHERE {held}{other}"  # noqa: S608
    return f"NOT EXISTS (SELECT 1 FROM ({inner}) AS held)"  # noqa: S608


@lru_cache(8)
def refused(dialect: Dialect, skips: bool) -> str:
    """Count refusals. Words: number, id. Not a change of the row: no version, nobody's decision.

    ``skips``: a row that somebody has locked is not waited for, and not counted.
    """
    q = dialect.name
    own = f"{q('id')} = %s AND {q('attention')} >= 0"
    if skips and not dialect.derived:
        own = f"{q('id')} = (SELECT {q('id')} FROM {q(TABLE)} WHERE {own} FOR UPDATE SKIP LOCKED)"  # noqa: S608
    return f"UPDATE {q(TABLE)} SET {q('refused')} = {q('refused')} + %s WHERE {own}"  # noqa: S608


@lru_cache(64)
def upsert(
    dialect: Dialect, table: str, names: tuple[str, ...], changed: str, number: int, more: bool
) -> str:
    """Insert rows with a unique ``key``; one that exists takes the new ``changed``, or adds it (``more``)."""
    q = dialect.name
    row = f"({', '.join(['%s'] * len(names))})"
    insert = (
        f"INSERT INTO {q(table)} ({columns(dialect, names)}) "  # noqa: S608
        f"VALUES {', '.join([row] * number)} "
    )
    old = f"{q(table)}.{q(changed)} + " if more else ""
    if dialect.derived:
        return f"{insert}ON DUPLICATE KEY UPDATE {q(changed)} = {old}VALUES({q(changed)})"
    return f"{insert}ON CONFLICT ({q('key')}) DO UPDATE SET {q(changed)} = {old}EXCLUDED.{q(changed)}"


def among(number: int) -> str:
    """Return the placeholders of an IN."""
    return ", ".join(["%s"] * number)
