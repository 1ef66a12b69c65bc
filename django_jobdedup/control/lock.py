"""A lock as people see it: who holds it, since when, until when, who was refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from django_jobdedup.header import task_id_of
from django_jobdedup.stores.record import Holder, Record, Ref

#: States of a holder, in words.
STATES: Final = {"P": "reserved", "W": "waiting", "R": "running", "K": "kept"}


@dataclass(frozen=True, slots=True)
class LockHolder:
    """One holder of a lock.

    ``id`` is its Celery task id. ``state``: ``reserved`` (being queued), ``waiting``, ``running``, ``kept``
    (ended, the lock stays). ``until`` is when it lapses unless somebody renews it, ``due`` when it may start.
    ``by`` is the process that queued or runs it, ``refused`` how many calls it has refused, ``merged`` how
    many have joined it. ``alive`` False: it ran, its lease has lapsed, and its message is to come again.
    """

    id: str
    state: str
    since: datetime
    until: datetime
    due: datetime | None
    by: str
    refused: int
    merged: int
    alive: bool
    shown: Holder = field(repr=False)


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that somebody holds: its name, fingerprint and store, and its holders, the oldest first."""

    name: str
    fingerprint: str
    store: str
    holders: tuple[LockHolder, ...]
    ref: Ref = field(repr=False)

    @property
    def waiting(self) -> tuple[LockHolder, ...]:
        """Return the holders that have not started."""
        return tuple(each for each in self.holders if each.state in ("reserved", "waiting"))

    @property
    def running(self) -> tuple[LockHolder, ...]:
        """Return the holders that run."""
        return tuple(each for each in self.holders if each.state == "running")

    @property
    def refused(self) -> int:
        """Return how many calls its holders have refused."""
        return sum(each.refused for each in self.holders)


def shown(store: str, record: Record | None) -> Lock | None:
    """Return a record as people see it, without what has lapsed; None where nobody holds it."""
    if record is None:
        return None
    holders = tuple(_holder(each, record.now) for each in record.holders if _lives(each, record.now))
    if not holders:
        return None
    return Lock(record.name, record.ref.fingerprint, store, holders, record.ref)


def _lives(holder: Holder, now: float) -> bool:
    """Whether time has not freed it; a waiting one with a stored call is never freed by time."""
    return _deadline(holder) > now or (holder.state in ("P", "W") and holder.args is not None)


def _deadline(holder: Holder) -> float:
    return max(holder.lease, holder.until) if holder.state == "R" else holder.until


def _holder(holder: Holder, now: float) -> LockHolder:
    return LockHolder(
        id=task_id_of(holder.id),
        state=STATES[holder.state],
        since=_moment(holder.since),
        until=_moment(_deadline(holder)),
        due=_moment(holder.due) if holder.due > now else None,
        by=holder.by,
        refused=holder.refused,
        merged=holder.merged,
        alive=holder.state != "R" or holder.lease > now,
        shown=holder,
    )


def _moment(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, UTC)
