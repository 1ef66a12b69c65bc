"""Many dispatches at once: one reading, one inserting, one look whether anybody came between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from django_jobdedup.stores.database import statements
from django_jobdedup.stores.database.changes import Change, Changes, changes
from django_jobdedup.stores.database.line import Conflict, Sql
from django_jobdedup.stores.database.purpose import acquiring
from django_jobdedup.stores.database.verbs import Verbs
from django_jobdedup.stores.database.view import View, look_many
from django_jobdedup.stores.database.writing import inserted, write_events, write_one, write_refused
from django_jobdedup.stores.inprocess import waiting
from django_jobdedup.stores.inprocess.step import Step
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import AcquireResult, Unavailable

#: Most calls, and about the most bytes of stored calls, in one transaction.
BATCH: Final = 100
BYTES: Final = 1_000_000
#: How often a batch is tried as a whole; then one by one, so that a busy key holds up only itself.
TRIES: Final = 3


class TooBusy(Exception):  # noqa: N818 - a fact
    """A batch met others too often."""


def acquire_many(verbs: Verbs, requests: Sequence[Acquire]) -> list[AcquireResult]:
    """Ask for waiting seats: in one order for all callers, the first of each lock in batches."""
    answers: list[Any] = [None] * len(requests)
    order = sorted(range(len(requests)), key=lambda place: requests[place].ref.fingerprint)
    seen: set[str] = set()
    first: list[int] = []
    later: list[int] = []
    for place in order:
        fingerprint = requests[place].ref.fingerprint
        (later if fingerprint in seen else first).append(place)
        seen.add(fingerprint)
    for places in _batches(requests, first):
        batch = [requests[place] for place in places]
        for place, answer in zip(places, _batch(verbs, batch), strict=True):
            answers[place] = answer
    for place in later:
        answers[place] = acquire(verbs, requests[place])
    return answers


def acquire(verbs: Verbs, request: Acquire) -> AcquireResult:
    """Ask for one waiting seat."""
    return verbs.take(request.ref, acquiring(request), partial(waiting.acquire, request=request))


def _batches(requests: Sequence[Acquire], places: list[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for place in places:
        if batch and (len(batch) == BATCH or size > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += len(requests[place].call or b"") + len(requests[place].args or b"")
    if batch:
        yield batch


def _batch(verbs: Verbs, requests: list[Acquire]) -> list[AcquireResult]:
    if len(requests) > 1:
        tries = iter(range(TRIES))
        try:
            done = verbs.line.run("acquire", lambda sql: _once(verbs, sql, requests, tries))
        except TooBusy:
            pass
        else:
            if isinstance(done, Unavailable):
                return [done] * len(requests)
            for step, _ in done:
                verbs.tally.add(step.shelf.counters)
            return [answer for _, answer in done]
    return [acquire(verbs, request) for request in requests]


def _once(
    verbs: Verbs, sql: Sql, requests: list[Acquire], tries: Iterator[int]
) -> list[tuple[Step, AcquireResult]]:
    if next(tries, None) is None:
        raise TooBusy
    views = look_many(sql, [(request.ref, request.id) for request in requests])
    done: list[tuple[Step, AcquireResult]] = []
    work: list[tuple[View, Changes]] = []
    for view, request in zip(views, requests, strict=True):
        step = view.step(verbs.grace)
        done.append((step, waiting.acquire(step, request)))
        work.append((view, changes(view, step, acquiring(request))))
    if any(found.rows or found.refused for _, found in work):
        with sql.atomic():
            _write(sql, work)
            write_events(sql, [event for step, _ in done for event in step.shelf.events])
    return done


def _write(sql: Sql, work: list[tuple[View, Changes]]) -> None:
    old: list[tuple[View, Change]] = []
    new: list[tuple[View, Change]] = []
    for view, found in work:
        for change in found.rows:
            (old if change.row.id else new).append((view, change))
    for view, change in sorted(old, key=lambda item: item[1].order):
        write_one(sql, view, change)
    if new:
        rows = [inserted(view, change) for view, change in new]
        words = [word for row in rows for word in row.values()]
        sql.write(statements.insert_many(sql.dialect, tuple(rows[0]), len(rows)), words)
    write_refused(sql, [refusal for _, found in work for refusal in found.refused])
    _look_again(sql, [item for item in work if item[1].seen is not None])


def _look_again(sql: Sql, entered: list[tuple[View, Changes]]) -> None:
    """See whether the new waiting seats rest on what is still so; what ``statements.guard`` does for one."""
    if not entered:
        return
    known = {view.ref.fingerprint: set(found.seen or ()) for view, found in entered}
    own = {(view.ref.fingerprint, change.row.token) for view, found in entered for change in found.rows}
    text = statements.held(sql.dialect, len(known))
    for fingerprint, id, version, token in sql.rows(text, list(known)):
        if (id, version) not in known[fingerprint] and (fingerprint, token) not in own:
            raise Conflict("a lock was changed by somebody else")
