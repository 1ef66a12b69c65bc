"""The line of a lock: jobs that were put off at a shut gate and sleep, in the order of their first put-off.

A release names the oldest, and somebody publishes its stored call: one more message of the same id beside the
one that sleeps. Whoever was named stays in the line as *woken* until that message has started, or has met
a shut gate again and lies down in its old place. Meanwhile its own put-offs leave the line alone, and the
second message publishes nothing: so a job has two messages at most, however often it is woken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.inprocess.seat import Entry, Seat, Sleeper
from django_jobdedup.stores.inprocess.step import Step
from django_jobdedup.stores.requests import Sleep
from django_jobdedup.stores.results import Asleep, Open, Overdue

#: Most jobs in one line.
MOST: Final = 100


def asleep(step: Step, request: Sleep) -> Asleep | Open:
    """Let a job stand in the line, unless the gate has opened since it was put off."""
    entry = step.entry(request.ref)
    others = [seat for seat in entry.seats if seat.id != request.id and seat.runs(step.now)]
    if len(others) < request.gate:
        return Open()
    own = entry.seat(request.id)
    if _is_woken_anyway(own) or not _is_kept(step, own, request):
        return Asleep()
    line = step.shelf.lines.setdefault(request.ref.fingerprint, {})
    _tidy(step, entry, line)
    before = line.get(request.id)
    if before is None and len(line) >= MOST:
        return Asleep()
    if before is not None and before.by and before.n >= request.n and not request.woken:
        return Asleep()  # its second message is still to come
    since = before.since if before is not None and before.n == request.n else step.now
    until = step.now + milliseconds(request.life)
    line[request.id] = Sleeper(since, until, request.n, request.call or b"")
    return Asleep()


def _is_woken_anyway(own: Seat | None) -> bool:
    """Whether a release finds its call beside its seat, see ``running.finish``."""
    return own is not None and bool(own.args)


def _is_kept(step: Step, own: Seat | None, request: Sleep) -> bool:
    if step.keeps:
        return own is not None and own.kept
    return request.call is not None


def _tidy(step: Step, entry: Entry, line: dict[str, Sleeper]) -> None:
    """Take off the line whoever was woken in vain, and at its head who does not sleep any more."""
    for id in [id for id, sleeper in line.items() if sleeper.by and sleeper.until <= step.now]:
        del line[id]
    if len(line) >= MOST:
        _head(step, entry, line)


def _head(step: Step, entry: Entry, line: dict[str, Sleeper]) -> str:
    """Return the id of the oldest that sleeps, and take off the line whoever is found not to."""
    for id in sorted((id for id, each in line.items() if not each.by), key=lambda id: (line[id].since, id)):
        if _sleeps(step, entry.seat(id), id, line[id]):
            return id
        del line[id]
    return ""


def _sleeps(step: Step, seat: Seat | None, id: str, sleeper: Sleeper) -> bool:
    mark = step.mark(id)
    over = mark is not None and (mark.final or bool(mark.by) or mark.n >= sleeper.n)
    started = seat is not None and (seat.state == "K" or seat.runs(step.now))
    return sleeper.until > step.now and not over and not started


def wake(step: Step, entry: Entry, by: str) -> Overdue | None:
    """Name the oldest sleeper; ``by`` is the nonce of the release, or what stands for it."""
    line = step.shelf.lines.get(entry.ref.fingerprint)
    id = _head(step, entry, line) if line else ""
    if line is None or not id:
        return None
    line[id] = replace(line[id], by=by)
    return _named(entry, id, line[id])


def woken(step: Step, entry: Entry, by: str) -> Overdue | None:
    """Name once more whom this release has woken."""
    line = step.shelf.lines.get(entry.ref.fingerprint, {})
    return next((_named(entry, id, each) for id, each in line.items() if each.by == by), None)


def _named(entry: Entry, id: str, sleeper: Sleeper) -> Overdue:
    return Overdue(entry.ref, id, sleeper.n, sleeper.call, entry.name)


def take_off(step: Step, entry: Entry, id: str) -> None:
    """Take a job off the line: it has started, or has ended."""
    line = step.shelf.lines.get(entry.ref.fingerprint)
    if line is not None and line.pop(id, None) is not None and not line:
        del step.shelf.lines[entry.ref.fingerprint]
