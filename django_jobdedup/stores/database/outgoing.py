"""Intents on their way out: who publishes them, what comes of them, who asks about them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, cast

from django_jobdedup.stores.database.line import Sql
from django_jobdedup.stores.database.looking import now_of
from django_jobdedup.stores.database.rows import key_of
from django_jobdedup.stores.database.statements import TABLE, among
from django_jobdedup.stores.durable import Fate, Found, Intent, State
from django_jobdedup.stores.inprocess.step import MINUTE
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.results import Gone
from django_jobdedup.stores.words import storable

#: The most intents of one answer.
MOST: Final = 500
#: The most rows of one statement that names each.
BATCH: Final = 100
INTENT: Final = (
    "id", "shard", "fingerprint", "token", "name", "call", "seat", "attempts", "mark_n", "mark_until",
    "copies", "relay", "merged",
)  # fmt: skip
#: The first letter of the stamp in a row whose message has been out before.
OUT: Final = "+"


def due(sql: Sql, limit: int, pending: int) -> list[Intent]:
    """Take intents whose time has come; nobody else gets them for ``pending`` milliseconds."""
    now, ids = _candidates(sql, min(limit, MOST))
    if not ids:
        return []
    stamp = secrets.token_hex(7)
    _stamp(sql, ids, stamp, now, now + pending)
    rows = _stamped(sql, ids, stamp, now)
    # Another relay has taken an earlier one of the same lock between the two statements.
    late = [row[0] for row in rows if row[-1]]
    if late:
        q = sql.dialect.name
        text = (
            f"UPDATE {q(TABLE)} SET {q('publish_at')} = %s, {q('relay')} = '', "  # noqa: S608
            f"{q('version')} = {q('version')} + 1 "
            f"WHERE {q('id')} IN ({among(len(late))}) AND {q('relay')} IN (%s, %s)"
        )
        sql.write(text, [now, *late, *_stamps(stamp)])
    return [_intent(row, now) for row in rows if not row[-1]]


def _stamps(stamp: str) -> tuple[str, str]:
    """Return what stands in rows whose message has been out before, and in others."""
    return OUT + stamp, stamp


def _candidates(sql: Sql, limit: int) -> tuple[int, list[int]]:
    """Find the first whose time has come, but none behind an earlier one of its lock that is due later.

    Return the server's time, and them. They come by their time, not by their key: so the search ends with
    the last of the batch, whatever waits behind it. Counted, because PostgreSQL makes a join of NOT EXISTS,
    and without statistics compares all that waits with all that waits.
    """
    q = sql.dialect.name
    earlier = (
        f"SELECT COUNT(*) FROM {q(TABLE)} e WHERE e.{q('fingerprint')} = c.{q('fingerprint')} "  # noqa: S608
        f"AND e.{q('publish_at')} > c.{q('publish_at')} AND e.{q('id')} < c.{q('id')} "
        f"AND e.{q('state')} = 'pending'"
    )
    text = (
        f"SELECT {sql.clock}, c.{q('id')} FROM {q(TABLE)} c "  # noqa: S608
        f"WHERE c.{q('publish_at')} <= {sql.milliseconds} "
        f"AND ({earlier}) = 0 ORDER BY c.{q('publish_at')}, c.{q('id')} LIMIT %s"
    )
    found = sql.rows(text, [limit])
    return (int(found[0][0]) // 1000 if found else 0), sorted(int(row[1]) for row in found)


def _stamp(sql: Sql, ids: list[int], stamp: str, now: int, then: int) -> None:
    q = sql.dialect.name
    seated = f"{q('seat')} <> ''"
    # W, not P: a relay whose publish fails must not be able to withdraw it.
    text = (
        f"UPDATE {q(TABLE)} SET "  # noqa: S608
        f"{q('relay')} = CASE WHEN {q('state')} = 'published' OR {q('relay')} LIKE %s THEN %s ELSE %s END, "
        f"{q('copies')} = {q('copies')} + CASE WHEN {q('state')} = 'published' THEN 1 ELSE 0 END, "
        f"{q('publish_at')} = %s, {q('state')} = 'pending', "
        f"{q('until')} = CASE WHEN {seated} THEN %s ELSE {q('until')} END, "
        f"{q('attention')} = CASE WHEN {seated} THEN %s ELSE {q('attention')} END, "
        f"{q('seat')} = CASE WHEN {seated} THEN 'W' ELSE {q('seat')} END, "
        f"{q('version')} = {q('version')} + 1 "
        f"WHERE {q('id')} IN ({among(len(ids))}) AND {q('publish_at')} <= %s"
    )
    sql.write(text, [OUT + "%", *_stamps(stamp), then, then, then, *ids, now])


def _stamped(sql: Sql, ids: list[int], stamp: str, now: int) -> list[tuple[Any, ...]]:
    q = sql.dialect.name
    earlier = (
        f"SELECT 1 FROM {q(TABLE)} e WHERE e.{q('fingerprint')} = c.{q('fingerprint')} "  # noqa: S608
        f"AND e.{q('publish_at')} > %s AND e.{q('id')} < c.{q('id')} AND e.{q('state')} = 'pending' "
        f"AND e.{q('relay')} NOT IN (%s, %s)"
    )
    fields = ", ".join(f"c.{q(name)}" for name in INTENT)
    text = (
        f"SELECT {fields}, EXISTS ({earlier}) FROM {q(TABLE)} c "  # noqa: S608
        f"WHERE c.{q('id')} IN ({among(len(ids))}) AND c.{q('relay')} IN (%s, %s) "
        f"ORDER BY c.{q('id')}"
    )
    stamps = _stamps(stamp)
    return sql.rows(text, [now, *stamps, *ids, *stamps])


def _intent(row: tuple[Any, ...], now: int) -> Intent:
    values = dict(zip(INTENT, row, strict=False))
    ended = values["mark_n"] if values["mark_until"] > now else -1
    return Intent(
        Ref(values["shard"], values["fingerprint"]),
        values["token"],
        ended + 1,
        values["name"],
        bytes(values["call"]),
        bool(values["seat"]),
        values["attempts"],
        values["relay"].startswith(OUT),
        values["copies"],
        bool(values["merged"]),
    )


def resolve(sql: Sql, ref: Ref, id: str, state: State, by: str, reason: str) -> Gone | None:
    """Settle an intent: its row says what became of it."""
    q = sql.dialect.name
    now = now_of(sql)
    undecided = f"({q('seat')} = '' AND {q('state')} IN ('pending', %s))"
    may, newest = undecided, ""
    if state in ("dead", "lost"):
        may = f"({undecided} OR {q('seat')} IN ('P', 'W'))"
    if state == "dead":
        # What a person sends again: the call with the newest arguments of those that have joined it.
        newest = f"{q('call')} = COALESCE({q('args')}, {q('call')}), {q('args')} = NULL, "
    text = (
        f"UPDATE {q(TABLE)} SET {q('state')} = %s, {q('reason')} = %s, {q('mark_by')} = %s, "  # noqa: S608
        f"{q('mark_until')} = CASE WHEN {q('mark_until')} > %s THEN {q('mark_until')} ELSE %s END, "
        f"{q('seat')} = '', {q('wait_key')} = NULL, {q('attention')} = NULL, {newest}"
        f"{q('publish_at')} = NULL, {q('ended_at')} = %s, {q('version')} = {q('version')} + 1 "
        f"WHERE {q('fingerprint')} = %s AND {q('key')} = %s AND {may}"
    )
    until = now + MINUTE
    words = [state, storable(reason), by, until, until, now, ref.fingerprint, key_of(id), state]
    return None if sql.write(text, words) else Gone()


def give_back(sql: Sql, seats: Sequence[tuple[Ref, str]]) -> int:
    """Make unpublished rows due now, and nobody's; return how many."""
    return sum(_give_back(sql, seats[start : start + BATCH]) for start in range(0, len(seats), BATCH))


def _give_back(sql: Sql, seats: Sequence[tuple[Ref, str]]) -> int:
    q, now = sql.dialect.name, sql.milliseconds
    own = " OR ".join([f"({q('fingerprint')} = %s AND {q('key')} = %s)"] * len(seats))
    text = (
        f"UPDATE {q(TABLE)} SET {q('publish_at')} = {now}, {q('relay')} = '', "  # noqa: S608
        f"{q('until')} = CASE WHEN {q('seat')} <> '' THEN {now} ELSE {q('until')} END, "
        f"{q('version')} = {q('version')} + 1 "
        f"WHERE {q('state')} = 'pending' AND {q('seat')} IN ('', 'P', 'W') "
        f"AND {q('publish_at')} IS NOT NULL AND ({own})"
    )
    return sql.write(text, [word for ref, id in seats for word in (ref.fingerprint, key_of(id))])


def missed(sql: Sql, ref: Ref, id: str, reason: str, retry_in: int) -> int | Gone:
    """Note a try that failed, and when the next one is to come."""
    q = sql.dialect.name
    then = now_of(sql) + retry_in
    own = f"{q('fingerprint')} = %s AND {q('key')} = %s"
    seated = f"{q('seat')} <> ''"
    text = (
        f"UPDATE {q(TABLE)} SET {q('attempts')} = {q('attempts')} + 1, {q('reason')} = %s, "  # noqa: S608
        f"{q('publish_at')} = %s, {q('until')} = CASE WHEN {seated} THEN %s ELSE {q('until')} END, "
        f"{q('attention')} = CASE WHEN {seated} THEN %s ELSE {q('attention')} END, "
        f"{q('version')} = {q('version')} + 1 WHERE {own} AND {q('publish_at')} IS NOT NULL"
    )
    words = [ref.fingerprint, key_of(id)]
    if not sql.write(text, [storable(reason), then, then, then, *words]):
        return Gone()
    rows = sql.rows(f"SELECT {q('attempts')} FROM {q(TABLE)} WHERE {own}", words)  # noqa: S608
    return int(rows[0][0]) if rows else Gone()


def fate(sql: Sql, ref: Ref, id: str) -> Fate | None:
    """Read what became of an intent."""
    q = sql.dialect.name
    text = (
        f"SELECT {q('state')}, {q('mark_by')}, {q('reason')} FROM {q(TABLE)} "  # noqa: S608
        f"WHERE {q('fingerprint')} = %s AND {q('key')} = %s"
    )
    rows = sql.rows(text, [ref.fingerprint, key_of(id)])
    return _fate(*rows[0]) if rows else None


def seek(sql: Sql, id: str) -> Found | None:
    """Find the newest intent of a task id."""
    q = sql.dialect.name
    names = ("shard", "fingerprint", "token", "state", "mark_by", "reason")
    text = (
        f"SELECT {', '.join(map(q, names))} FROM {q(TABLE)} "  # noqa: S608
        f"WHERE {q('job_key')} = %s ORDER BY {q('id')} DESC LIMIT 1"
    )
    rows = sql.rows(text, [key_of(id)])
    if not rows:
        return None
    shard, fingerprint, token, *rest = rows[0]
    return Found(Ref(shard, fingerprint), token, _fate(*rest))


def _fate(state: str, by: str, reason: str) -> Fate:
    return Fate(cast(State, state), by if state in ("superseded", "dead") else "", reason)
