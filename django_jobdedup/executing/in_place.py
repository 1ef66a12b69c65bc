"""An eager call on its way: what its dispatch, its start and its end tell each other.

It runs in its caller, so there is no message to carry the header. Dispatch and start see one value
instead, by context: other threads and the calls inside the body have values of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django_jobdedup.call import Execution
from django_jobdedup.header import Header
from django_jobdedup.outcomes import How


class Visit:
    """One eager attempt: mutable, seen only by its own thread."""

    __slots__ = ("header", "how", "id", "refused_by", "started")

    def __init__(self, id: str, header: Header | None) -> None:
        self.id = id
        self.header = header
        #: The start has taken the header: a later one of the same id is a retry or a replacement.
        self.started = False
        #: How the seat was given back; None while nobody has.
        self.how: How | None = None
        #: Whose job stood in the way of the start.
        self.refused_by: str | None = None

    @property
    def owes(self) -> bool:
        """Say whether its seat may still be there, with nobody to come for it.

        A seat that was handed over is given back by the retry, if Celery starts one.
        """
        if self.header is None or not self.header.locks:
            return False
        return not self.started or self.how is How.HANDOVER


visit: ContextVar[Visit | None] = ContextVar("jobdedup_visit", default=None)


@contextmanager
def visiting(id: str, header: Header | None) -> Iterator[Visit]:
    """Let the start of this id find its header."""
    current = Visit(id, header)
    mark = visit.set(current)
    try:
        yield current
    finally:
        visit.reset(mark)


def take_header(id: str) -> Header | None:
    """Return the header of the eager call that starts here; once: a body that runs itself has its lock."""
    current = visit.get()
    if current is None or current.id != id or current.started:
        return None
    current.started = True
    return current.header


def take_up(id: str) -> Header | None:
    """Return the header of the attempt that an eager retry of this id goes on with; None for a new job."""
    current = visit.get()
    if current is None or current.id != id or not current.started:
        return None
    return current.header


def note(execution: Execution, how: How | None) -> None:
    """Note how the seat was given back."""
    current = visit.get()
    if execution.eager and current is not None and current.id == execution.id:
        current.how = how


def refuse(execution: Execution, by: str) -> None:
    """Note that the body may not start."""
    current = visit.get()
    if current is not None and current.id == execution.id:
        current.refused_by = by
