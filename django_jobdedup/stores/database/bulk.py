"""Many dispatches at once: one reading, one inserting, one look whether anybody came between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

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
from django_jobdedup.stores.results import Acquired, AcquireResult, Unavailable

#: Most calls, and about the most bytes of stored calls, in one transaction.
BATCH: Final = 100
BYTES: Final = 1_000_000
#: How often a batch is tried as a whole; then one by one, so that a busy key holds up only itself.
TRIES: Final = 3


class TooBusy(Exception):  # noqa: N818 - a fact
    """A batch met others too often."""


def acquire_many(verbs: Verbs, requests: Sequence[Acquire]) -> list[AcquireResult]:
    """Ask for waiting seats: in one order for all callers, in batches, the first of each lock foremost.

    Of one lock a batch decides the first request, and those behind it that get no seat of their own; what
    comes behind them is for the next round.
    """
    answers: dict[int, AcquireResult] = {}
    left = _by_turns(requests)
    while left:
        unsettled: set[str] = set()
        for batch in _batches(requests, left):
            places = [place for place in batch if requests[place].ref.fingerprint not in unsettled]
            answers.update(_batch(verbs, requests, sorted(places, key=lambda place: _order(requests, place))))
            unsettled |= {requests[place].ref.fingerprint for place in places if place not in answers}
        left = [place for place in left if place not in answers]
    return [answers[place] for place in range(len(requests))]


def _by_turns(requests: Sequence[Acquire]) -> list[int]:
    """Return all places: the first of each lock, then the second of each."""
    number: Counter[str] = Counter()
    turns: list[int] = []
    for request in requests:
        turns.append(number[request.ref.fingerprint])
        number[request.ref.fingerprint] += 1
    return sorted(range(len(requests)), key=lambda place: (turns[place], requests[place].ref.fingerprint))


def _order(requests: Sequence[Acquire], place: int) -> tuple[str, int]:
    return requests[place].ref.fingerprint, place


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


def _batch(verbs: Verbs, requests: Sequence[Acquire], places: list[int]) -> dict[int, AcquireResult]:
    """Decide a batch, at least the first request of each lock; the answers by place."""
    if len(places) > 1:
        tries = iter(range(TRIES))
        groups = [list(some) for _, some in groupby(places, lambda place: requests[place].ref.fingerprint)]
        asked = [[requests[place] for place in group] for group in groups]
        try:
            done = verbs.line.run("acquire", lambda sql: _once(verbs, sql, asked, tries))
        except TooBusy:
            pass
        else:
            if isinstance(done, Unavailable):
                return dict.fromkeys(places, done)
            for step, _ in done:
                verbs.tally.add(step.shelf.counters)
            found = zip(groups, done, strict=True)
            return {
                place: told for group, (_, some) in found for place, told in zip(group, some, strict=False)
            }
    return {place: acquire(verbs, requests[place]) for place in places}


def _once(
    verbs: Verbs, sql: Sql, groups: list[list[Acquire]], tries: Iterator[int]
) -> list[tuple[Step, list[AcquireResult]]]:
    if next(tries, None) is None:
        raise TooBusy
    views = look_many(sql, [(request.ref, request.id) for group in groups for request in group])
    done: list[tuple[Step, list[AcquireResult]]] = []
    work: list[tuple[View, Changes]] = []
    for view, group in zip(views, groups, strict=True):
        step, answers = _decided(view.step(verbs.grace), group)
        done.append((step, answers))
        work.append((view, changes(view, step, acquiring(group[0]))))
    if any(found.rows or found.refused for _, found in work):
        with sql.atomic():
            _write(sql, work)
            write_events(sql, [event for step, _ in done for event in step.shelf.events])
    return done


def _decided(step: Step, group: list[Acquire]) -> tuple[Step, list[AcquireResult]]:
    """Decide the first request of a lock, and those behind it as long as they get no seat of their own.

    They change what is there, if anything, so the write set of the first holds them all.
    """
    answers: list[AcquireResult] = [waiting.acquire(step, group[0])]
    for request in group[1:]:
        trial = step.copy()
        told = waiting.acquire(trial, request)
        if isinstance(told, Acquired):
            break
        step = trial
        answers.append(told)
    return step, answers


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
