"""Writing: a decision takes effect as a whole, or somebody was faster and nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django_jobdedup.header import task_id_of
from django_jobdedup.models import LockEvent
from django_jobdedup.stores.database import statements
from django_jobdedup.stores.database.changes import Change, Changes
from django_jobdedup.stores.database.line import Conflict, Sql
from django_jobdedup.stores.database.rows import Columns, key_of
from django_jobdedup.stores.database.view import View
from django_jobdedup.stores.results import Event

#: Columns of a change that are written by the statement itself, or that no row has.
NOT_SET: Final = ("id", "version", "token")

#: Rows as they were seen: (id, version).
Seen = tuple[tuple[int, int], ...]


def write(sql: Sql, view: View, changes: Changes, events: list[Event]) -> None:
    """Write a decision. Raises Conflict or IntegrityError when it rests on what is no longer so."""
    if not changes.rows and not changes.refused and not events:
        return
    if changes.few and not events and sql.alone:
        _write_all(sql, view, changes)
        return
    with sql.atomic():
        _write_all(sql, view, changes)
        write_events(sql, events)


def _write_all(sql: Sql, view: View, changes: Changes) -> None:
    for change in changes.rows:
        guarded = change.columns.get("wait_key") and changes.seen is not None
        write_one(sql, view, change, changes.seen if guarded else None)
    write_refused(sql, changes.refused)


def write_one(sql: Sql, view: View, change: Change, seen: Seen | None = None) -> None:
    """Write one row, with a guard over what was ``seen``. Raises Conflict."""
    guarded = None if seen is None else len(seen)
    known = [] if seen is None else [view.ref.fingerprint, *(word for row in seen for word in row)]
    row = change.row
    if row.id:
        columns = {name: value for name, value in change.columns.items() if name not in NOT_SET}
        text = statements.update(sql.dialect, tuple(columns), guarded)
        words = [*columns.values(), row.id, row.version, *known]
    else:
        columns = inserted(view, change)
        text = statements.insert(sql.dialect, tuple(columns), guarded)
        words = [*columns.values(), *known]
    if sql.write(text, words) != 1:
        raise Conflict(f"the lock {view.ref.fingerprint} was changed by somebody else")


def write_refused(sql: Sql, refused: Iterable[tuple[int, int]]) -> None:
    """Count refusals, by primary key."""
    skips = sql.connection.features.has_select_for_update_skip_locked
    for id, number in sorted(refused):
        sql.write(statements.refused(sql.dialect, skips), [number, id])


def write_events(sql: Sql, events: list[Event]) -> None:
    """Write events."""
    if events:
        LockEvent.objects.using(sql.connection.alias).bulk_create(map(event_row, events))


def inserted(view: View, change: Change) -> Columns:
    """Return all columns of a new row, always in one order."""
    return {
        "call": None,
        **change.columns,
        **address(view.ref.shard, view.ref.fingerprint, change.row.token),
        "version": 1,
        "created_at": view.micros // 1000,
    }


def address(shard: int, fingerprint: str, token: str) -> dict[str, Any]:
    """Return the columns that say whose row it is."""
    return {
        "shard": shard,
        "fingerprint": fingerprint,
        "key": key_of(token),
        "job_key": key_of(task_id_of(token)),
        "token": token,
    }


def event_row(event: Event, store: str = "", key: str | None = None) -> LockEvent:
    """Return the row of an event; ``store`` and ``key`` where it is the copy of one of another store."""
    return LockEvent(
        at=round(event.at * 1000),
        what=event.what,
        shard=event.ref.shard,
        fingerprint=event.ref.fingerprint,
        token=event.id,
        name=event.name,
        by=event.by,
        other=event.other,
        store=store,
        key=key,
    )
