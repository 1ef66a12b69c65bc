"""The kit: what one test can do with its locks, and what it can ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

from celery import current_app

from django_jobdedup import signals
from django_jobdedup.call import Call, Execution
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.outcomes import Outcome, Start
from django_jobdedup.stores.handler import stores
from django_jobdedup.testkit import after_commit, leftovers
from django_jobdedup.testkit.after_commit import PendingCall
from django_jobdedup.testkit.clock import MovableClock
from django_jobdedup.testkit.locks import HeldLock, held_in

T = TypeVar("T")


class Kit:
    """The locks of one test: no server, nothing of another test or process in them.

    Where a ``task`` is asked for, it is the task or its name. Raises LookupError for a name that this
    process does not know and that nobody has called.
    """

    def __init__(self) -> None:
        #: The time of the locks: ``clock.advance(minutes=91)``.
        self.clock = MovableClock()
        self._outcomes: list[tuple[str, Outcome]] = []
        self._starts: list[tuple[str, Start]] = []

    def outcomes(self, task: Any = None) -> list[Outcome]:
        """Return what the dispatches so far became, oldest first; of one task, or of all with a policy.

        They compare with text: ``outcomes(build_report) == ["accepted", "suppressed"]``.
        """
        return _of(task, self._outcomes)

    def starts(self, task: Any = None) -> list[Start]:
        """Return what the starts so far became, oldest first, those in an in-process worker included."""
        return _of(task, self._starts)

    def locks(self, task: Any = None) -> list[HeldLock]:
        """Return the live holders, oldest first; those under the lock name of one task, or all."""
        confirmer.flush()
        held = [lock for store in stores.all() for lock in held_in(store)]
        found = [lock for lock in held if task is None or lock.name == _name(task)]
        return sorted(found, key=lambda lock: lock.since)

    def pending_after_commit(self, task: Any = None) -> list[PendingCall]:
        """Return the calls that wait for a commit, in order: made by ``delay_on_commit``, not carried out.

        ``transaction.on_commit(partial(task.delay, ...))`` counts too; a lambda cannot be looked into.
        """
        return _of(task, ((call.task, call) for call in after_commit.pending()))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear of dispatches, starts and calls on commit within the block."""

        def dispatched(sender: object, call: Call, outcome: Outcome, **_: Any) -> None:
            self._outcomes.append((call.task, outcome))

        def started(sender: object, execution: Execution, decision: Start, **_: Any) -> None:
            self._starts.append((execution.task, decision))

        with ExitStack() as end:
            end.enter_context(leftovers.dropped())
            for signal, receiver in (
                (signals.dispatch_decided, dispatched),
                (signals.execution_decided, started),
            ):
                signal.connect(receiver)
                end.callback(signal.disconnect, receiver)
            end.enter_context(after_commit.noting())
            yield


def _name(task: Any) -> str:
    name = task if isinstance(task, str) else getattr(task, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"needs a task or its name, not {task!r}")
    return name


def _of(task: Any, noted: Iterable[tuple[str, T]]) -> list[T]:
    """Of one task, or of all. A misspelt name would make a test that never fails."""
    some = list(noted)
    if task is None:
        return [each for _, each in some]
    name = _name(task)
    found = [each for of, each in some if of == name]
    if not found and name not in current_app.tasks:
        close = get_close_matches(name, current_app.tasks, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise LookupError(f"There is no task {name!r} in this process, and none was called.{meant}")
    return found
