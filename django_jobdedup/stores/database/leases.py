"""Leases and confirmations: one conditional statement for many rows where nothing is out of the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.database.dialect import Dialect
from django_jobdedup.stores.database.line import Line, Sql
from django_jobdedup.stores.database.rows import key_of
from django_jobdedup.stores.database.statements import TABLE, among
from django_jobdedup.stores.inprocess.seat import LOOK
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Token
from django_jobdedup.stores.results import Lost, Renewed, Unavailable

#: Most rows of one statement.
BATCH: Final = 200


def confirm(sql: Sql, seats: Sequence[tuple[Ref, str]]) -> int:
    """Make reserved rows wait; return how many it were. Leaves those alone that come over others."""
    q = sql.dialect.name
    now = sql.milliseconds
    # One that a relay was handed is W by then, and its TTL counts from now.
    late = f"{q('seat')} = 'W' AND {q('due')} < {now}"
    until = f"CASE WHEN {late} THEN {now} + {q('ttl')} ELSE {q('due')} + {q('ttl')} END"
    soon = f"{q('since')} + {LOOK}"
    one = f"({q('fingerprint')} = %s AND {q('key')} = %s)"
    # MySQL assigns from left to right: what others read comes last.
    text = (
        f"UPDATE {q(TABLE)} SET {q('until')} = {until}, "  # noqa: S608
        f"{q('publish_at')} = CASE WHEN {q('call')} IS NULL THEN NULL ELSE {until} END, "
        f"{q('attention')} = CASE WHEN {q('call')} IS NULL AND {q('args')} IS NULL "
        f"AND {soon} < {q('due')} + {q('ttl')} THEN {soon} ELSE {until} END, {q('reason')} = '', "
        f"{q('version')} = {q('version')} + 1, {q('seat')} = 'W', {q('state')} = 'published' "
        f"WHERE ({q('seat')} = 'P' OR ({q('seat')} = 'W' AND {q('state')} = 'pending')) "
        f"AND {q('over')} = '' AND ({' OR '.join([one] * len(seats))})"
    )
    return sql.write(text, [word for ref, id in seats for word in (ref.fingerprint, key_of(id))])


def renew(sql: Sql, tokens: Sequence[Token]) -> int:
    """Move leases to now + lease; return how many. All ``tokens`` have the same lease.

    Passes by rows that an open transaction has locked (a body that publishes its own id in one), where the
    engine can: they must not keep the other leases of a worker from being renewed.
    """
    q = sql.dialect.name
    now = sql.milliseconds
    table, own = q(TABLE), _running(sql.dialect, len(tokens))
    sets = f"{q('lease')} = {now} + %s, {q('attention')} = {now} + %s, {q('version')} = {q('version')} + 1"
    lease = milliseconds(tokens[0].lease)
    whose, until = _words(tokens), [lease, lease]
    if not sql.connection.features.has_select_for_update_skip_locked:
        return sql.write(f"UPDATE {table} SET {sets} WHERE {own}", [*until, *whose])  # noqa: S608
    free = f"SELECT {q('id')} FROM {table} WHERE {own} FOR UPDATE SKIP LOCKED"  # noqa: S608
    if not sql.dialect.derived:
        return sql.write(f"UPDATE {table} SET {sets} WHERE {q('id')} IN ({free})", [*until, *whose])  # noqa: S608
    with sql.atomic():  # MariaDB waits for a locked row all the same where this is one statement
        ids = [row[0] for row in sql.rows(free, whose)]
        text = f"UPDATE {table} SET {sets} WHERE {q('id')} IN ({among(len(ids))})"  # noqa: S608
        return sql.write(text, [*until, *ids]) if ids else 0


def runs(sql: Sql, token: Token) -> bool:
    """Say whether a delivery has its seat, by what is committed."""
    text = f"SELECT 1 FROM {sql.dialect.name(TABLE)} WHERE {_running(sql.dialect, 1)}"  # noqa: S608
    return bool(sql.rows(text, _words([token])))


def renew_all(line: Line, tokens: Sequence[Token]) -> list[Renewed | Lost | Unavailable]:
    """Move leases, in one statement for all of one length that are still their deliveries'.

    ``Unavailable`` for one whose row somebody has locked: it is to be asked for again.
    """
    answers: list[Any] = [None] * len(tokens)
    for places in batches(tokens):
        batch = [tokens[place] for place in places]
        number = line.run("renew", partial(renew, tokens=batch))
        for place, token in zip(places, batch, strict=True):
            if isinstance(number, Unavailable):
                answers[place] = number
            else:
                answers[place] = Renewed() if number == len(batch) else _renewed(line, token)
    return answers


def _renewed(line: Line, token: Token) -> Renewed | Lost | Unavailable:
    number = line.run("renew", partial(renew, tokens=[token]))
    if isinstance(number, Unavailable):
        return number
    still = True if number else line.run("renew", partial(runs, token=token))
    if isinstance(still, Unavailable):
        return still
    if number:
        return Renewed()
    return Unavailable("an open transaction has locked the row of this job") if still else Lost()


def _running(dialect: Dialect, number: int) -> str:
    q = dialect.name
    one = f"({q('fingerprint')} = %s AND {q('key')} = %s AND {q('nonce')} = %s)"
    return f"{q('seat')} = 'R' AND {q('lease')} > 0 AND ({' OR '.join([one] * number)})"


def _words(tokens: Sequence[Token]) -> list[Any]:
    return [word for token in tokens for word in (token.ref.fingerprint, key_of(token.id), token.nonce)]


def batches(tokens: Iterable[Token]) -> list[list[int]]:
    """Return the places of tokens in groups of one lease, each token of a group for another row."""
    groups: dict[tuple[float, int], list[int]] = {}
    often: dict[tuple[str, str], int] = {}
    for place, token in enumerate(tokens):
        turn = often[token.ref.fingerprint, token.id] = often.get((token.ref.fingerprint, token.id), -1) + 1
        groups.setdefault((token.lease, turn), []).append(place)
    return [some[start : start + BATCH] for some in groups.values() for start in range(0, len(some), BATCH)]
