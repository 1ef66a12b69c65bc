"""The verbs of an execution: claim, renew, finish."""

from __future__ import annotations

from django_jobdedup.outcomes import How
from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.inprocess import sleeping
from django_jobdedup.stores.inprocess.seat import Entry, Mark, Seat
from django_jobdedup.stores.inprocess.step import MINUTE, Step
from django_jobdedup.stores.requests import Claim, Finish, Token
from django_jobdedup.stores.results import (
    Busy,
    Claimed,
    Done,
    Early,
    Exhausted,
    HandedOver,
    Kept,
    Lost,
    NotMine,
    Overdue,
    Released,
    Renewed,
    Superseded,
)

ClaimAnswer = Claimed | Superseded | Done | Busy | Early | Exhausted
FinishAnswer = Released | Kept | HandedOver | NotMine


def claim(step: Step, request: Claim) -> ClaimAnswer:
    """Ask for a running seat."""
    what, answer = _decide(step, request)
    if what and request.counted:
        step.count(request.name, what)
    return answer


def _decide(step: Step, request: Claim) -> tuple[str, ClaimAnswer]:
    mark = step.mark(request.id)
    if mark is not None and mark.by:
        return "superseded", _follow(step, request, mark.by)
    if mark is not None and mark.final and mark.number is not None and mark.nonce == request.nonce:
        return "", Exhausted(mark.number)
    if mark is not None and (mark.final or mark.n >= request.n):
        return "done", Done()
    entry = step.entry(request.ref)
    own = entry.seat(request.id)
    # Another process with this nonce: Celery's pool hands a job on when a process died before it said that
    # it had begun. That is a start of its own.
    if own is not None and own.state == "R" and (own.nonce, own.by) == (request.nonce, request.by):
        return "", _claimed(own)
    if own is not None and own.runs(step.now):
        return "busy", Busy(True, (own.lease - step.now) / 1000, own.id)
    if own is not None and own.state == "K" and not own.dead(step.now):
        return "done", Done()
    return _contend(step, entry, own, request)


def _follow(step: Step, request: Claim, by: str) -> Superseded:
    entry = step.entry(request.ref)
    own = entry.seat(request.id)
    if own is not None and own.waits:  # of a version that gave seats to superseded ids
        entry.seats.remove(own)
        step.event("superseded", entry, own, by)
        step.save(entry)
    return Superseded(by)


def _contend(step: Step, entry: Entry, own: Seat | None, request: Claim) -> tuple[str, ClaimAnswer]:
    if step.sweep(entry, request.id):
        step.save(entry)
    others = [seat for seat in entry.seats if seat.id != request.id and seat.runs(step.now)]
    if own is not None and own.first and own.due > step.now:
        return "early", Early((own.due - step.now) / 1000)
    if request.gate and len(others) >= request.gate:
        first = min(others, key=lambda seat: seat.lease)
        return "busy", Busy(False, (first.lease - step.now) / 1000, first.id)
    if own is not None and request.max_starts and own.starts >= request.max_starts:
        return "exhausted", _exhaust(step, entry, own, request)
    return "claimed", _start(step, entry, own, request)


def _claimed(own: Seat) -> Claimed:
    return Claimed(own.fence, own.since / 1000, own.args, own.starts)


def _exhaust(step: Step, entry: Entry, own: Seat, request: Claim) -> Exhausted:
    entry.seats.remove(own)
    step.event("exhausted", entry, own)
    step.save(entry)
    before = step.mark(own.id)
    # Not for a shorter time than an attempt that has ended before is remembered.
    deadline = max(step.now + max(milliseconds(request.late), MINUTE), before.deadline if before else 0)
    step.shelf.marks[own.id] = Mark(deadline, final=True, nonce=request.nonce, number=own.starts)
    return Exhausted(own.starts)


def _start(step: Step, entry: Entry, own: Seat | None, request: Claim) -> Claimed:
    if own is None:
        own = Seat(request.id, "R", request.by, step.now, step.now)
        entry.seats.append(own)
    step.supersede(entry, own)
    _overtake(step, entry, request)
    late, ttl = milliseconds(request.late), milliseconds(request.ttl)
    own.state, own.nonce, own.lease = "R", request.nonce, step.now + milliseconds(request.lease)
    own.until = step.now + max(ttl, late) if late else 0
    own.first, own.since, own.ttl, own.by = 0, step.now, ttl, request.by
    own.starts += 1
    own.fence = step.next_fence()
    entry.name = request.name or entry.name
    step.save(entry)
    return _claimed(own)


def _overtake(step: Step, entry: Entry, request: Claim) -> None:
    """Mark the lapsed runs whose place at the gate is taken: they must learn it, even much later."""
    others = [seat for seat in entry.seats if seat.id != request.id and seat.state == "R"]
    if request.gate and len(others) >= request.gate:
        for seat in others:
            if not seat.runs(step.now):
                seat.lease = 0


def renew(step: Step, token: Token) -> Renewed | Lost:
    """Move a lease, a lapsed one too if nobody took the seat."""
    entry = step.entry(token.ref)
    own = entry.seat(token.id)
    if own is None or own.state != "R" or not own.lease or own.nonce != token.nonce:
        return Lost()
    own.lease = step.now + milliseconds(token.lease)
    step.save(entry)
    return Renewed()


FINISHED = {Released: "released", Kept: "kept", HandedOver: "handed_over", NotMine: "not_mine"}


def finish(step: Step, request: Finish) -> FinishAnswer:
    """Give a running seat back, and remember the ended id in the same step."""
    entry = step.entry(request.token.ref)
    entry.name = entry.name or request.name
    own = entry.seat(request.token.id)
    before = _repeated(step, own, request)
    if before is not None:
        return _told(before, _stored(step, entry) or sleeping.woken(step, entry, request.token.nonce))
    answer = _end(step, entry, own, request)
    if request.counted:
        step.count(request.name, FINISHED[type(answer)])
    if not isinstance(answer, Released | Kept):
        return answer
    return _told(answer, _stored(step, entry) or sleeping.wake(step, entry, request.token.nonce))


def _told(answer: FinishAnswer, waiter: Overdue | None) -> FinishAnswer:
    """Name the oldest job that could start now: its message sleeps, so its stored call is to be published."""
    return type(answer)(waiter) if waiter is not None and isinstance(answer, Released | Kept) else answer


def _stored(step: Step, entry: Entry) -> Overdue | None:
    for seat in entry.seats:
        if seat.state == "W" and seat.args and seat.due <= step.now:
            return Overdue(entry.ref, seat.id, step.ended(seat.id) + 1, seat.args, entry.name)
    return None


def _repeated(step: Step, own: Seat | None, request: Finish) -> FinishAnswer | None:
    """Answer as before to a lost reply asked for again, or to a second process that saw the same ending."""
    mark = step.mark(request.token.id)
    if mark is not None and mark.final and mark.nonce == request.token.nonce and mark.number is None:
        return Kept() if own is not None and own.state == "K" else Released()
    if own is not None and own.state != "R" and own.last == "n" + request.token.nonce:
        return HandedOver()
    return None


def _end(step: Step, entry: Entry, own: Seat | None, request: Finish) -> FinishAnswer:
    mine = own is not None and own.state == "R" and own.nonce == request.token.nonce
    if request.how is not How.REQUEUE:
        _mark(step, mine and request.how in (How.RELEASE, How.KEEP), request)
    if step.sweep(entry, request.token.id):
        step.save(entry)
    if own is not None and mine:
        sleeping.take_off(step, entry, own.id)
        answer = _give_back(step, entry, own, request)
        step.save(entry)
        return answer
    step.event("lock_lost", entry, Seat(request.token.id, "R", "", 0, 0), request.token.nonce)
    return NotMine()


def _mark(step: Step, owner: bool, request: Finish) -> None:
    """Only the owner's own end closes the id; anybody else can only close the attempt he ran."""
    id, mark = request.token.id, step.mark(request.token.id)
    if mark is not None and (mark.by or mark.final):
        return
    life = max(step.now + milliseconds(request.marker_ttl), mark.deadline if mark else 0)
    new = (
        Mark(life, final=True, nonce=request.token.nonce)
        if owner
        else Mark(life, max(request.n, step.ended(id)))
    )
    step.shelf.marks[id] = new


def _give_back(step: Step, entry: Entry, own: Seat, request: Finish) -> FinishAnswer:
    if request.how is How.RELEASE:
        entry.seats.remove(own)
        return Released()
    own.nonce, own.lease, own.since = "", 0, step.now
    if request.how is How.KEEP:
        own.state, own.args = "K", None
        own.until = own.due + own.ttl
        return Kept()
    # The next message of this id waits from now, or from its eta.
    own.state, own.last = "W", "n" + request.token.nonce
    own.due = max(own.due, step.now)
    own.until = own.due + own.ttl
    if request.unsent is not None:  # it is overdue at once: its eta travels in the call
        own.kept, own.until = True, step.now
    return HandedOver()
