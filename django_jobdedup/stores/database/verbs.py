"""A verb on the database: look, decide, write the difference, and again if somebody was faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django_jobdedup.stores.database.changes import changes
from django_jobdedup.stores.database.line import Line, Sql
from django_jobdedup.stores.database.purpose import Purpose
from django_jobdedup.stores.database.tally import Tally
from django_jobdedup.stores.database.view import View, look
from django_jobdedup.stores.database.writing import write
from django_jobdedup.stores.inprocess.step import Step
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.results import Unavailable

T = TypeVar("T")
Decide = Callable[[Step], T]


class Verbs:
    """Takes the steps of one store: the decisions of ``inprocess`` over the rows of one lock."""

    def __init__(self, line: Line, grace: int) -> None:
        self.line, self.grace = line, grace
        self.tally = Tally(line)

    def take(self, ref: Ref, purpose: Purpose, decide: Decide[T]) -> T | Unavailable:
        """Take one atomic step over the lock of ``ref``."""
        answer = self.line.run(purpose.verb, lambda sql: self.once(sql, ref, purpose, decide))
        if isinstance(answer, Unavailable):
            return answer
        step, told = answer
        self.tally.add(step.shelf.counters)
        return told

    def once(self, sql: Sql, ref: Ref, purpose: Purpose, decide: Decide[T]) -> tuple[Step, T]:
        """Try one step. Raises Conflict and what the database raises."""
        view = look(sql, ref, purpose.token, fence=purpose.verb == "claim")
        return self.settle(sql, view, purpose, decide)

    def settle(self, sql: Sql, view: View, purpose: Purpose, decide: Decide[T]) -> tuple[Step, T]:
        """Decide over what was seen and write what it changes."""
        step = view.step(self.grace)
        told = decide(step)
        write(sql, view, changes(view, step, purpose), list(step.shelf.events))
        return step, told
