"""Known mistakes, planted in the steps that the memory store and the database store share."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from django_jobdedup.stores.inprocess import running, upkeep, waiting
from django_jobdedup.stores.inprocess.seat import Seat
from django_jobdedup.stores.inprocess.step import Step

from .mutants import EXCLUSIVE
from .rule_mutants import KEPT, MERGES, OVER, SEATS, STARTS


@dataclass(frozen=True)
class StepMutant:
    """One planted mistake: in which function to replace what by what; ``policies`` and ``late`` as ever."""

    name: str
    function: Callable[..., Any]
    old: str
    new: str
    policies: tuple[str, ...] = ()
    late: tuple[bool, ...] = (False, True)

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Put a function with the mistake in the place of the right one."""
        function = self.function
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, (
            f"{self.name}: {function.__qualname__} no longer has {self.old!r} once"
        )
        text = "from __future__ import annotations\n" + source.replace(self.old, self.new)
        made: dict[str, Any] = {}
        exec(compile(text, f"<{self.name}>", "exec"), function.__globals__, made)
        owner: Any = inspect.getmodule(function)
        for name in function.__qualname__.split(".")[:-1]:
            owner = getattr(owner, name)
        patch.setattr(owner, function.__name__, made[function.__name__])


M = StepMutant

STEP_MUTANTS = (
    # --- the table of the protocol ---
    M("release by id only", running._end, "own.state == \"R\" and own.nonce == request.token.nonce",
      "own.state == \"R\""),
    M("claim without nonce", running._decide, "if own is not None and own.runs(step.now):", "if False:"),
    M("claim of any process", running._decide, "(own.nonce, own.by) == (request.nonce, request.by)",
      "own.nonce == request.nonce"),
    M("renew by id", running.renew, " or own.nonce != token.nonce", "", late=(True,)),
    M("no hand-over", running._give_back, "request.how is How.RELEASE", "request.how is not How.KEEP"),
    M("retry not armed", waiting._own, "own.until = max(own.until, own.due + milliseconds(request.ttl))",
      "pass",
      EXCLUSIVE, (False,)),
    M("marker per attempt", running._end, "mine and request.how in (How.RELEASE, How.KEEP)", "False"),
    M("marker always final", running._end, "mine and request.how in", "request.how in", late=(True,)),
    M("acquire after final", waiting._decide, "(mark.final or mark.by)", "mark.by", late=(True,)),
    M("late lapse frees", running._start, "step.now + max(ttl, late) if late else 0", "0", EXCLUSIVE,
      (True,)),
    M("an intent lapses", Seat.dead, " and not self.intent", "", MERGES),
    M("a withdrawal drops the merged", waiting.withdraw, "if own.merged:", "if False:", MERGES),
    M("the sweep takes one's own", Step.sweep, "seat.id != own and ", ""),
    M("a fence a moment", Step.next_fence, "max(self.shelf.fence + 1, self.micros)", "self.micros"),
    # --- replace ---
    M("one that is superseded keeps its seat", Step.supersede, "for id in seat.over]", "for id in ()]", OVER),
    M("nobody is told who came over", Step.supersede,
      "self.shelf.marks[older.id] = Mark(deadline, by=seat.id)",
      "pass", OVER),
    M("who was superseded is known for a minute", Step.supersede,
      "max(older.due + older.ttl, self.now + MINUTE)",
      "self.now + MINUTE", ("replace",)),
    M("one that runs is superseded", Step.supersede, " and older.waits", "", ("replace",)),
    M("a start comes over nobody", running._start, "step.supersede(entry, own)", "own.over = ()",
      ("replace",)),
    M("a message that exists comes over nobody", Step.to_waiting, "self.supersede(entry, seat)",
      "seat.over = ()",
      ("replace",)),
    M("over the oldest alone", waiting._conflict, "tuple(seat.id for seat in others)", "(others[0].id,)",
      ("replace",)),
    M("as soon is sooner", waiting._conflict, "by.due <= step.now", "by.due < step.now", ("keep_soonest",)),
    M("sooner than the oldest", waiting._conflict, "min(others, key=lambda seat: seat.due)", "others[0]",
      ("keep_soonest",)),
    M("a retry's eta is forgotten", running._give_back, "own.due = max(own.due, step.now)",
      "own.due = step.now",
      ("keep_soonest",)),
    # --- rerun ---
    M("the oldest arguments win", waiting._merge,
      "with_newest(seat.args, request.args)", "seat.args", MERGES),
    M("an overdue job is not published", waiting._merge, "if overdue or seat.due < due else asked",
      "if seat.due < due else asked", MERGES),
    M("a call does not bring the start forward", waiting._move_due, "seat.due = min(seat.due,",
      "_ = min(seat.due,",
      ("rerun",)),
    M("joined to the oldest", waiting._conflict, "others[-1]", "others[0]", ("rerun",)),
    M("a retry goes on with the old arguments", waiting._own,
      "own.args = own.args if request.args is None else request.args", "pass", MERGES),
    M("a hand-over drops the arguments", running._give_back, "own.state, own.last = \"W\",",
      "own.state, own.args, own.last = \"W\", None,", MERGES),
    M("the end of a run wakes nobody", running._stored, "for seat in entry.seats:", "for seat in ():",
      ("rerun",)),
    M("the end of a run wakes the newest", running._stored, "for seat in entry.seats:",
      "for seat in reversed(entry.seats):", ("rerun",)),
    M("one is woken before its time", running._stored, " and seat.due <= step.now", "", ("rerun",)),
    M("one is woken as what has ended", running._stored, "step.ended(seat.id) + 1", "0", ("rerun",)),
    M("an overdue attempt is one that has ended", upkeep._overdue, "step.ended(seat.id) + 1", "0",
      ("rerun",)),
    M("every reaper publishes it", upkeep._overdue, "step.now + pending", "step.now", MERGES),
    M("what was published again stays overdue", waiting.confirm, "elif own.intent:", "elif False:", MERGES),
    M("a call does not put the start off", waiting._due, "due = step.now + milliseconds(request.merge.wait)",
      "due = first + milliseconds(request.merge.wait)", ("debounce",)),
    M("calls put a start off for ever", waiting._due, "due if most is None else", "due if True else",
      ("debounce",)),
    M("a start comes too early", running._contend, "own.first and own.due > step.now", "False",
      ("debounce",)),
    # --- hand-over ---
    M("a requeue ends the attempt", running._end, "request.how is not How.REQUEUE", "True", late=(True,)),
    M("a hand-over closes the id", running._end, "request.how in (How.RELEASE, How.KEEP)",
      "request.how is not How.REQUEUE"),
    M("a hand-over ends no attempt", running._end, "request.how is not How.REQUEUE",
      "request.how in (How.RELEASE, How.KEEP)"),
    M("a retry takes a seat beside another", waiting._decide, "len(counted) < request.limit",
      "len(counted) < request.limit or request.again", EXCLUSIVE, (False,)),
    M("a retry without a seat finds none", waiting._decide, "len(counted) < request.limit",
      "len(counted) < request.limit and not request.again", EXCLUSIVE),
    M("what was handed over lapses at once", running._give_back,
      "own.until = own.due + own.ttl\n    if request.unsent", "own.until = step.now\n    if request.unsent",
      EXCLUSIVE),
    # --- several holders ---
    M("one holder too many", waiting._decide, "len(counted) < request.limit",
      "len(counted) <= request.limit"),
    M("one run too many", running._contend, "len(others) >= request.gate", "len(others) > request.gate",
      SEATS),
    M("one run for all", running._contend, "len(others) >= request.gate", "len(others) >= 1", SEATS),
    M("the first holder goes, not one's own", running._give_back, "entry.seats.remove(own)",
      "entry.seats.pop(0)",
      SEATS),
    M("who is kept does not count", waiting._decide, "seat.state in request.counts",
      "seat.state in request.counts.replace(\"K\", \"\")", KEPT),
    M("who is kept goes at once", running._give_back, "own.until = own.due + own.ttl\n        return Kept()",
      "own.until = step.now\n        return Kept()", KEPT),
    M("a place is taken where one was free", running._overtake, "len(others) >= request.gate", "others",
      SEATS,
      (True,)),
    M("whose place was taken does not learn it", running._overtake, "seat.lease = 0", "pass",
      ("until_executed", "while_executing"), (True,)),
    M("starts are not counted over hand-overs", running._start, "own.starts += 1", "own.starts = 1", STARTS),
    M("one start too many", running._contend, "own.starts >= request.max_starts",
      "own.starts > request.max_starts",
      STARTS, (True,)),
    M("who is exhausted keeps the seat", running._exhaust, "entry.seats.remove(own)", "pass", STARTS,
      (True,)),
    M("who is exhausted is not closed", running._exhaust, "final=True", "final=False", STARTS, (True,)),
    # --- hands ---
    M("whatever was shown is removed", upkeep.remove, "(own.state, own.since, own.until) !=", "() and () !="),
    M("a removal forgets which attempt has ended", upkeep.remove, "mark.n if mark else -1", "-1"),
    M("an old message calls the next one off", waiting._close, " or mark.n >= request.n >= 0", ""),
    M("a running job is called off", waiting._close, "if own is not None and not own.waits:", "if False:",
      EXCLUSIVE),
    M("a message without a header is not known to exist", waiting._add, "if request.received:", "if False:",
      ("until_and_while_executing",)),
)  # fmt: skip
