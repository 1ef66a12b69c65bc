"""The verbs that look after records: reap, remove, inspect, list."""

from __future__ import annotations

from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.inprocess import sleeping
from django_jobdedup.stores.inprocess.seat import Entry, Mark, Seat
from django_jobdedup.stores.inprocess.step import LAPSES, MINUTE, Step
from django_jobdedup.stores.record import Holder, Marker, Record, Ref
from django_jobdedup.stores.results import Doubt, Gone, Lapse, Overdue, Reaped, Withdrawn


def reap(step: Step, limit: int, pending: int) -> Reaped:
    """Look at the records whose moment of attention has passed; ``pending`` in milliseconds."""
    lapses: list[Lapse] = []
    overdue: list[Overdue] = []
    doubtful: list[Doubt] = []
    waiters: list[Overdue] = []
    for entry in _by_attention(step, 0)[:limit]:
        if entry.attention > step.now:
            break
        for seat in step.sweep(entry):
            lapses.append(Lapse(LAPSES[seat.state], entry.ref, seat.id, entry.name, seat.by))
            if seat.state == "R":
                sleeping.take_off(step, entry, seat.id)
                waiters += filter(None, [sleeping.wake(step, entry, seat.nonce)])
        # Behind a live run a worker may be holding a job whose message is acked (the strategy ``wait``).
        shut = any(seat.runs(step.now) for seat in entry.seats)
        for seat in entry.seats:
            if _is_overdue(step, seat):
                overdue.append(_overdue(step, entry, seat, pending))
            elif not shut and seat.doubtful(step.now):
                doubtful.append(Doubt(entry.ref, entry.name, seat.holder()))
        step.save(entry)
    return Reaped(tuple(lapses), tuple(overdue), tuple(doubtful), tuple(waiters))


def _is_overdue(step: Step, seat: Seat) -> bool:
    # One whose call is kept is published by the relay, see ``DurableStore.due``.
    return seat.intent and not seat.kept and seat.until <= step.now


def _overdue(step: Step, entry: Entry, seat: Seat, pending: int) -> Overdue:
    # Reported once in a while, by whichever reaper comes first, until it is confirmed or claimed.
    # It is W, not P, so that a reaper whose publish fails cannot withdraw it.
    seat.state, seat.until = "W", step.now + pending
    return Overdue(entry.ref, seat.id, step.ended(seat.id) + 1, seat.args or b"", entry.name)


def remove(step: Step, ref: Ref, shown: Holder) -> Withdrawn | Gone:
    """Remove a holder if it is still the one that was shown."""
    entry, mark = step.entry(ref), step.mark(shown.id)
    own = entry.seat(shown.id)
    closed = mark is not None and (mark.final or bool(mark.by))
    if own is None:
        kept = None if mark is None or closed else mark.number
        return Gone() if kept is None else Withdrawn(kept)
    since, until = milliseconds(shown.since), milliseconds(shown.until)
    if (own.state, own.since, own.until) != (shown.state, since, until):
        return Gone()
    if own.merged != shown.merged:  # a call that joins moves no deadline, and would be lost
        return Gone()
    entry.seats.remove(own)
    step.event("removed", entry, own)
    step.save(entry)
    if not closed:
        # Ends nothing more than before: it keeps the answer for a caller whose reply was lost, and for the
        # next renewal of a run.
        life = max(step.now + MINUTE, own.lease, mark.deadline if mark else 0)
        step.shelf.marks[own.id] = Mark(life, mark.n if mark else -1, number=own.refused)
    return Withdrawn(own.refused)


def inspect(step: Step, ref: Ref, id: str) -> Record | None:
    """Show one record as it is, the dead included, and the marker of one id."""
    entry, mark = step.entry(ref), step.mark(id)
    marker = mark.marker() if mark is not None else None
    if not entry.seats and marker is None:
        return None
    return _record(step, entry, marker=marker)


def list_locks(step: Step, after: float, limit: int) -> list[Record]:
    """Show records by rising moment of attention."""
    found = _by_attention(step, milliseconds(after))[:limit]
    return [_record(step, entry, attention=entry.attention / 1000) for entry in found]


def _record(step: Step, entry: Entry, marker: Marker | None = None, attention: float = 0.0) -> Record:
    holders = tuple(seat.holder() for seat in entry.seats)
    return Record(entry.ref, entry.name, holders, marker, step.now / 1000, attention)


def _by_attention(step: Step, after: int) -> list[Entry]:
    found = [entry for entry in step.shelf.entries.values() if entry.attention >= after]
    return sorted(found, key=lambda entry: (entry.attention, entry.ref.fingerprint))
