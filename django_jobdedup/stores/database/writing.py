"""Writing: a decision takes effect as a whole, or somebody was faster and nothing is written."""

from __future__ import annotations

from typing import Any, Final

from django_jobdedup.header import task_id_of
from django_jobdedup.models import LockEvent
from django_jobdedup.stores.database import statements
from django_jobdedup.stores.database.changes import Change, Changes
from django_jobdedup.stores.database.line import Conflict, Sql
from django_jobdedup.stores.database.rows import key_of
from django_jobdedup.stores.database.view import View
from django_jobdedup.stores.results import Event

#: Columns of a change that are written by the statement itself, or that no row has.
NOT_SET: Final = ("id", "version", "token")


def write(sql: Sql, view: View, changes: Changes, events: list[Event]) -> None:
    """Write a decision. Raises Conflict or IntegrityError when it rests on what is no longer so."""
    if not changes.rows and not changes.refused and not events:
        return
    if changes.few and not events and sql.alone:
        _write_all(sql, view, changes)
        return
    with sql.atomic():
        _write_all(sql, view, changes)
        if events:
            LockEvent.objects.using(sql.connection.alias).bulk_create(map(_event, events))


def _write_all(sql: Sql, view: View, changes: Changes) -> None:
    for change in changes.rows:
        if change.row.id:
            _update(sql, view, change, changes)
        else:
            _insert(sql, view, change, changes)
    for id, number in sorted(changes.refused):
        sql.write(statements.refused(sql.dialect), [number, id])


def _guard(view: View, change: Change, changes: Changes) -> tuple[int | None, list[Any]]:
    if changes.seen is None or not change.columns.get("wait_key"):
        return None, []
    return len(changes.seen), [view.ref.fingerprint, *statements.words_of(changes.seen)]


def _update(sql: Sql, view: View, change: Change, changes: Changes) -> None:
    columns = {name: value for name, value in change.columns.items() if name not in NOT_SET}
    guarded, seen = _guard(view, change, changes)
    text = statements.update(sql.dialect, tuple(columns), guarded)
    words = [*columns.values(), change.row.id, change.row.version, *seen]
    if sql.write(text, words) != 1:
        raise Conflict(f"row {change.row.id} was changed by somebody else")


def _insert(sql: Sql, view: View, change: Change, changes: Changes) -> None:
    columns = {
        **change.columns,
        **address(view.ref.shard, view.ref.fingerprint, change.row.token),
        "version": 1,
        "created_at": view.micros // 1000,
    }
    columns.setdefault("call", None)
    guarded, seen = _guard(view, change, changes)
    text = statements.insert(sql.dialect, tuple(columns), guarded)
    if sql.write(text, [*columns.values(), *seen]) != 1:
        raise Conflict("the lock was changed by somebody else")


def address(shard: int, fingerprint: str, token: str) -> dict[str, Any]:
    """Return the columns that say whose row it is."""
    return {
        "shard": shard,
        "fingerprint": fingerprint,
        "key": key_of(token),
        "job_key": key_of(task_id_of(token)),
        "token": token,
    }


def _event(event: Event) -> LockEvent:
    return LockEvent(
        at=round(event.at * 1000),
        what=event.what,
        shard=event.ref.shard,
        fingerprint=event.ref.fingerprint,
        token=event.id,
        name=event.name,
        by=event.by,
        other=event.other,
    )
