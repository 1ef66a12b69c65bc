"""The calls of jobs that are to be woken: no step reads one, for it may be large."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from django_jobdedup.stores.database.line import Line, Sql
from django_jobdedup.stores.database.rows import key_of
from django_jobdedup.stores.database.statements import TABLE
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.results import FinishResult, Kept, Overdue, Reaped, Released


def with_call(line: Line, answer: FinishResult) -> FinishResult:
    """Return the answer to a finish with the call of its waiter; without a waiter whose call is gone."""
    if isinstance(answer, Released | Kept) and answer.waiter is not None:
        return type(answer)(_complete(line, answer.waiter))
    return answer


def with_calls(line: Line, reaped: Reaped) -> Reaped:
    """Return what was reaped with the calls of its waiters."""
    waiters = (_complete(line, waiter) for waiter in reaped.waiters)
    return replace(reaped, waiters=tuple(filter(None, waiters)))


def _complete(line: Line, waiter: Overdue) -> Overdue | None:
    if waiter.args:
        return waiter
    call = line.run("wake", partial(_call_of, ref=waiter.ref, id=waiter.id))
    return replace(waiter, args=call) if isinstance(call, bytes) else None


def _call_of(sql: Sql, ref: Ref, id: str) -> bytes | None:
    q = sql.dialect.name
    text = f"SELECT {q('call')} FROM {q(TABLE)} WHERE {q('fingerprint')} = %s AND {q('key')} = %s"  # noqa: S608
    rows = sql.rows(text, [ref.fingerprint, key_of(id)])
    return bytes(rows[0][0]) if rows and rows[0][0] is not None else None
