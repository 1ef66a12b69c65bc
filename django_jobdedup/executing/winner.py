"""The job that followers wait for: whether it still holds its lock, and what it ended with."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from celery import states
from celery.exceptions import Ignore, Reject, Retry, WorkerLostError

from django_jobdedup import signals
from django_jobdedup.exceptions import JobLost, WinnerFailed
from django_jobdedup.header import LIFE, Header
from django_jobdedup.middleware.addressing import ref_of
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Holder, Record
from django_jobdedup.stores.results import Unavailable

#: Errors that mean something else to Celery when a body raises them: MemoryError stops the whole worker.
MEANT_OTHERWISE: Final = (Ignore, Reject, Retry, WorkerLostError, MemoryError)
#: Ends the token of a stand-in; no life has it.
HEIR: Final = "+"
#: How many jobs a process remembers to have seen.
REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class Holding:
    """It holds its lock: waits, or runs, at store time ``now``; ``seen`` by this process's own clock."""

    holder: Holder
    now: float
    seen: float


@dataclass(frozen=True, slots=True)
class Superseded:
    """Job ``by`` (a token) has taken its place."""

    by: str


@dataclass(frozen=True, slots=True)
class Over:
    """It waits and runs no more. ``ended``: it has come to an end, else nobody knows.

    ``kept``: it has ended and its lock is kept. ``own``: the follower itself holds the lock by now.
    """

    ended: bool
    kept: bool = False
    own: bool = False


Seen = Holding | Superseded | Over


@dataclass(frozen=True, slots=True)
class Returned:
    """It has succeeded with ``value``."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """It has failed with ``error``."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Broken:
    """It was revoked, has expired, or its worker has vanished: it will never have an outcome."""


Key = tuple[str, str]
_seen: Final[dict[Key, Holding]] = {}
#: The followers of each that this process has met.
_crowds: Final[dict[Key, set[str]]] = {}


def crowd(header: Header) -> int:
    """Return how many followers of the same job this process has met, this one included."""
    if len(_crowds) >= REMEMBERED:
        _crowds.clear()
    met = _crowds.setdefault((header.fingerprint, header.follow), set())
    met.add(header.token)
    return len(met)


def forget() -> None:
    """Forget what this process has seen."""
    _seen.clear()
    _crowds.clear()


def see(header: Header, fresh: float) -> Seen | Unavailable:
    """Ask the store for the job that ``header`` follows.

    That it holds its lock may be known from another follower of it, ``fresh`` seconds ago at most: a
    thousand followers of one job are not a thousand questions.
    """
    key = (header.fingerprint, header.follow)
    known = _seen.get(key)
    if known is not None and time.monotonic() - known.seen <= fresh:
        return known
    record = stores[header.knobs.store].inspect(ref_of(header), header.follow)
    found = record if isinstance(record, Unavailable) else _read(header, record)
    if isinstance(found, Holding):
        if len(_seen) >= REMEMBERED:
            _seen.clear()
        _seen[key] = found
    else:
        _seen.pop(key, None)
        _crowds.pop(key, None)
    return found


def _read(header: Header, record: Record | None) -> Seen:
    if record is None:
        return Over(ended=False)
    holders = {holder.id: holder for holder in record.holders}
    if header.token in holders:
        return Over(ended=False, own=True)
    holder = holders.get(header.follow)
    if holder is not None and not _is_dead(holder, record.now):
        if holder.state == "K":
            return Over(ended=True, kept=True)
        return Holding(replace(holder, args=None), record.now, time.monotonic())
    if record.marker is not None and record.marker.superseded_by:
        return Superseded(record.marker.superseded_by)
    return Over(ended=record.marker is not None and record.marker.final)


def _is_dead(holder: Holder, now: float) -> bool:
    """Whether its time has passed; a waiting one with arguments is published again instead."""
    if holder.state in "PW" and holder.args is not None:
        return False
    last = max(holder.lease, holder.until) if holder.state == "R" else holder.until
    return last <= now


def stand_in_for(token: str) -> str:
    """Return the token of the stand-in by which followers of a job that is gone find its heir."""
    return f"{token}{HEIR}" if LIFE in token else f"{token}{LIFE}{HEIR}"


def heir_of(record: Record | Unavailable | None) -> str:
    """Return the token of the follower that has taken the work over, from the record of the stand-in."""
    if not isinstance(record, Record) or record.marker is None:
        return ""
    return record.marker.superseded_by


def outcome_of(app: Any, task_id: str) -> Returned | Raised | Broken | None:
    """Read the result of a job that holds nothing any more; None where there is none (yet)."""
    try:
        # Past the cache: an id may have had a result in an earlier life.
        meta = app.backend.get_task_meta(task_id, cache=False)
    except Exception as error:
        signals.report("following", error)
        return None
    state, result = meta["status"], meta["result"]
    if state == states.SUCCESS:
        return Returned(result)
    if state == states.REVOKED or isinstance(result, JobLost):
        return Broken()
    return Raised(_raisable(task_id, result)) if state in states.EXCEPTION_STATES - {states.RETRY} else None


def _raisable(task_id: str, error: object) -> Exception:
    """The error itself, so that error callbacks see it, unless it would do more than fail this job."""
    if isinstance(error, Exception) and not isinstance(error, MEANT_OTHERWISE):
        return error
    words = f"{type(error).__name__}: {error}"
    return WinnerFailed(f"Job {task_id}, which this one follows, ended with {words}.", task_id)
