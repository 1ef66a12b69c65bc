"""What a commit has made visible: taken before a relay does it, and settled together."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache

from django_jobdedup.stores.database.dialect import Dialect
from django_jobdedup.stores.database.line import Sql
from django_jobdedup.stores.database.rows import key_of
from django_jobdedup.stores.database.statements import TABLE
from django_jobdedup.stores.inprocess.step import MINUTE
from django_jobdedup.stores.record import Ref

#: Most rows of one statement.
BATCH = 100


def take(sql: Sql, seats: Sequence[tuple[Ref, str]], pending: int) -> list[bool]:
    """Take rows that nobody has decided or taken; no relay gets them for ``pending`` milliseconds."""
    q = sql.dialect.name
    stamp, pairs = secrets.token_hex(8), _pairs(seats)
    own = _any(sql.dialect, len(seats))
    text = (
        f"UPDATE {q(TABLE)} SET {q('relay')} = %s, {q('publish_at')} = {sql.milliseconds} + %s, "  # noqa: S608
        f"{q('version')} = {q('version')} + 1 WHERE {q('state')} = 'pending' AND {q('seat')} = '' "
        f"AND {q('relay')} = '' AND {q('publish_at')} IS NOT NULL AND ({own})"
    )
    if sql.write(text, [stamp, pending, *pairs]) == len(seats):
        return [True] * len(seats)
    fields = f"{q('fingerprint')}, {q('key')}"
    found = sql.rows(
        f"SELECT {fields} FROM {q(TABLE)} WHERE {q('relay')} = %s AND ({own})",  # noqa: S608
        [stamp, *pairs],
    )
    taken = {(str(fingerprint), str(key)) for fingerprint, key in found}
    return [(ref.fingerprint, key_of(id)) in taken for ref, id in seats]


def supersede(sql: Sql, refused: Sequence[tuple[Ref, str, str]]) -> None:
    """Settle undecided rows, each refused by the holder that comes third."""
    told = [word for ref, id, by in refused for word in (ref.fingerprint, key_of(id), by)]
    pairs = _pairs([(ref, id) for ref, id, _ in refused])
    sql.write(_superseding(sql.dialect, sql.milliseconds, len(refused)), [*told, *pairs])


@lru_cache(64)
def _superseding(dialect: Dialect, now: str, number: int) -> str:
    q = dialect.name
    case = f"WHEN {q('fingerprint')} = %s AND {q('key')} = %s THEN %s "
    return (
        f"UPDATE {q(TABLE)} SET {q('state')} = 'superseded', {q('reason')} = '', "  # noqa: S608
        f"{q('mark_by')} = CASE {case * number}ELSE '' END, {q('mark_until')} = {now} + {MINUTE}, "
        f"{q('publish_at')} = NULL, {q('ended_at')} = {now}, {q('version')} = {q('version')} + 1 "
        f"WHERE {q('seat')} = '' AND {q('state')} IN ('pending', 'superseded') "
        f"AND ({_any(dialect, number)})"
    )


def _pairs(seats: Sequence[tuple[Ref, str]]) -> list[str]:
    return [word for ref, id in seats for word in (ref.fingerprint, key_of(id))]


def _any(dialect: Dialect, number: int) -> str:
    one = f"({dialect.name('fingerprint')} = %s AND {dialect.name('key')} = %s)"
    return " OR ".join([one] * number)
