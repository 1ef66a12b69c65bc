"""Leases and confirmations: one conditional statement for many rows where nothing is out of the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.database.line import Sql
from django_jobdedup.stores.database.rows import key_of
from django_jobdedup.stores.database.statements import TABLE
from django_jobdedup.stores.inprocess.seat import LOOK
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Token

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
    """Move leases to now + lease; return how many. All ``tokens`` have the same lease."""
    q = sql.dialect.name
    now = sql.milliseconds
    one = f"({q('fingerprint')} = %s AND {q('key')} = %s AND {q('nonce')} = %s)"
    text = (
        f"UPDATE {q(TABLE)} SET {q('lease')} = {now} + %s, {q('attention')} = {now} + %s, "  # noqa: S608
        f"{q('version')} = {q('version')} + 1 "
        f"WHERE {q('seat')} = 'R' AND {q('lease')} > 0 AND ({' OR '.join([one] * len(tokens))})"
    )
    lease = milliseconds(tokens[0].lease)
    words: list[Any] = [lease, lease]
    for token in tokens:
        words += [token.ref.fingerprint, key_of(token.id), token.nonce]
    return sql.write(text, words)


def batches(tokens: Iterable[Token]) -> list[list[int]]:
    """Return the places of tokens in groups of one lease, each token of a group for another row."""
    groups: dict[tuple[float, int], list[int]] = {}
    often: dict[tuple[str, str], int] = {}
    for place, token in enumerate(tokens):
        turn = often[token.ref.fingerprint, token.id] = often.get((token.ref.fingerprint, token.id), -1) + 1
        groups.setdefault((token.lease, turn), []).append(place)
    return [some[start : start + BATCH] for some in groups.values() for start in range(0, len(some), BATCH)]
