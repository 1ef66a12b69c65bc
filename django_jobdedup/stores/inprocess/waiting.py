"""The verbs of a dispatch: acquire, confirm, withdraw."""

from __future__ import annotations

from dataclasses import replace

from django_jobdedup.stored_call.parts import with_newest
from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.inprocess import sleeping
from django_jobdedup.stores.inprocess.seat import Entry, Mark, Seat
from django_jobdedup.stores.inprocess.step import Step, waiting
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Withdraw
from django_jobdedup.stores.results import (
    Acquired,
    Confirmed,
    Gone,
    Held,
    Merged,
    Outside,
    Owed,
    Withdrawn,
)

Answer = Acquired | Held | Merged | Outside


def acquire(step: Step, request: Acquire) -> Answer:
    """Ask for a waiting seat."""
    what, answer = _decide(step, request)
    if what and request.counted:
        step.count(request.name, what)
    return answer


def _decide(step: Step, request: Acquire) -> tuple[str, Answer]:
    mark = step.mark(request.id)
    if mark is not None and (mark.final or mark.by):
        # A seat of a superseded id would stay: its claim starts nothing, so nothing gives it back.
        return "outside", Outside()
    entry = step.entry(request.ref)
    if step.sweep(entry, request.id):
        step.save(entry)
    own = entry.seat(request.id)
    if own is not None:
        return "", _own(step, entry, own, request)
    counted = [seat for seat in entry.seats if seat.state in request.counts]
    if len(counted) < request.limit:
        return "acquired", _add(step, entry, request)
    if request.again:
        return "outside", Outside()
    return _conflict(step, entry, request, counted)


def _own(step: Step, entry: Entry, own: Seat, request: Acquire) -> Acquired:
    own.kept = own.kept or _keeps(step, request)
    if own.state == "P":
        own.until = step.now + milliseconds(request.pending)
        if request.received:
            step.to_waiting(entry, own)
        step.save(entry)
    elif own.state == "R" and request.again:
        # A message of this id is about to exist: from now on a lapsed lease does not free the seat.
        own.due = step.now + milliseconds(request.due_in)
        own.until = max(own.until, own.due + milliseconds(request.ttl))
        own.args = own.args if request.args is None else request.args  # what the retry itself says
        step.save(entry)
    return Acquired(own.since / 1000)


def _add(step: Step, entry: Entry, request: Acquire, over: tuple[str, ...] = ()) -> Acquired:
    seat = Seat(request.id, "P", request.by, _due(step, request, step.now), step.now)
    seat.first = step.now if _debounces(request) else 0
    seat.ttl, seat.until = milliseconds(request.ttl), step.now + milliseconds(request.pending)
    seat.args, seat.over, seat.kept = request.args, over, _keeps(step, request)
    entry.seats.append(seat)
    entry.name = request.name or entry.name
    if request.received:
        step.to_waiting(entry, seat)
    step.save(entry)
    return Acquired(step.now / 1000)


def _keeps(step: Step, request: Acquire) -> bool:
    return step.keeps and request.call is not None


def _debounces(request: Acquire) -> bool:
    return request.merge is not None and milliseconds(request.merge.wait) > 0


def _due(step: Step, request: Acquire, first: int) -> int:
    if request.merge is None or not _debounces(request):
        return step.now + milliseconds(request.due_in)
    due = step.now + milliseconds(request.merge.wait)
    most = request.merge.max_wait
    return due if most is None else min(due, first + milliseconds(most))


def _conflict(step: Step, entry: Entry, request: Acquire, counted: list[Seat]) -> tuple[str, Answer]:
    others = waiting(counted)
    on_waiting, by = request.on_waiting, counted[0]
    if others and on_waiting == "soonest":
        # Not the first: one that is due sooner may be about to take its place.
        by = min(others, key=lambda seat: seat.due)
        on_waiting = "keep" if by.due <= step.now + milliseconds(request.due_in) else "over"
    if not others or on_waiting == "keep":
        return "held", _refuse(by)
    if on_waiting == "merge":
        return "merged", _merge(step, entry, request, others[-1])
    return "acquired", _add(step, entry, request, tuple(seat.id for seat in others))


def _refuse(seat: Seat) -> Held:
    seat.refused += 1
    return Held(seat.id, seat.state, seat.since / 1000, seat.deadline / 1000, seat.by)


def _merge(step: Step, entry: Entry, request: Acquire, seat: Seat) -> Merged:
    asked = "m" + request.id
    if seat.last != asked and not seat.last.startswith(asked + "!"):
        overdue, due, ahead = seat.until <= step.now, seat.due, _ahead(step, seat)
        seat.merged += 1
        _move_due(step, request, seat)
        if overdue:
            seat.state, seat.until = "P", step.now + milliseconds(request.pending)
        # The answer is kept with the id, so that a lost reply can be asked for again.
        seat.last = f"{asked}!{ahead}" if overdue or seat.due < due else asked
        if overdue:  # its new message waits from now on
            seat.due = max(seat.due, step.now)
    seat.args = seat.args if request.args is None else with_newest(seat.args, request.args)
    step.save(entry)
    n = step.ended(seat.id) + 1
    if seat.last == asked:
        return Merged(seat.id, n, publish=False)
    ahead, due_in = int(seat.last[len(asked) + 1 :]), max(0, seat.due - step.now)
    return Merged(seat.id, n, True, ahead / 1000, due_in / 1000, seat.args or b"")


def _ahead(step: Step, seat: Seat) -> int:
    """How long the message that is out may be ahead, whatever was brought forward since it was sent."""
    sent = seat.until - seat.ttl if seat.state == "W" else seat.due
    return max(0, seat.due - step.now, sent - step.now)


def _move_due(step: Step, request: Acquire, seat: Seat) -> None:
    if not _debounces(request):
        seat.due = min(seat.due, step.now + milliseconds(request.due_in))
        return
    seat.first = seat.first or step.now
    seat.due = _due(step, request, seat.first)
    if seat.state == "W":
        seat.until = seat.due + seat.ttl


def confirm(step: Step, ref: Ref, id: str) -> Confirmed | Gone:
    """Say that a message exists; creates nothing."""
    entry = step.entry(ref)
    own = entry.seat(id)
    if own is None:
        return Gone()
    if own.state == "P" or own.over:
        step.to_waiting(entry, own)
        step.save(entry)
    elif own.intent:
        # An overdue one was published again.
        own.until = max(own.until, max(own.due, step.now) + own.ttl)
        step.save(entry)
    return Confirmed()


def withdraw(step: Step, request: Withdraw) -> Withdrawn | Owed | Gone:
    """Give a waiting seat back."""
    entry, mark = step.entry(request.ref), step.mark(request.id)
    if step.sweep(entry, request.id):
        step.save(entry)
    own = entry.seat(request.id)
    if request.waiting:
        return _close(step, entry, own, mark, request)
    closed = mark is not None and (mark.final or bool(mark.by))
    if own is None and mark is not None and not closed and mark.number is not None:
        return Withdrawn(mark.number)
    if own is None or own.state != "P":
        return Gone()
    if own.merged:
        # Others have merged into it: it stays, overdue, for somebody to publish.
        own.until = min(own.until, step.now)
        step.save(entry)
        return Owed()
    return _take_back(step, entry, own, mark, Mark(0, number=own.refused), request)


def _close(
    step: Step, entry: Entry, own: Seat | None, mark: Mark | None, request: Withdraw
) -> Withdrawn | Gone:
    if mark is not None and mark.final and not mark.nonce and mark.number is not None and own is None:
        return Withdrawn(mark.number)
    if mark is not None and mark.by and mark.by == request.by and mark.number is not None and own is None:
        return Withdrawn(mark.number)
    if mark is not None and (mark.by or mark.final or mark.n >= request.n >= 0):
        return Gone()
    if own is not None and not own.waits:
        return Gone()
    # A later copy of a start that was skipped says who covers it: nobody else would speak for its id.
    number = own.refused if own else 0
    return _take_back(
        step, entry, own, mark, Mark(0, final=not request.by, by=request.by, number=number), request
    )


def _take_back(
    step: Step, entry: Entry, own: Seat | None, mark: Mark | None, new: Mark, request: Withdraw
) -> Withdrawn:
    sleeping.take_off(step, entry, request.id)
    if own is not None:
        entry.seats.remove(own)
        if own.refused + own.merged:
            step.event("withdrawn", entry, own, str(own.refused + own.merged))
    step.save(entry)
    # The marker keeps the answer for a caller whose reply was lost, and which attempt has ended before.
    deadline = max(step.now + milliseconds(request.marker_ttl), mark.deadline if mark else 0)
    n = -1 if mark is None or new.final or new.by else mark.n
    step.shelf.marks[request.id] = replace(new, deadline=deadline, n=n)
    return Withdrawn(new.number or 0)
