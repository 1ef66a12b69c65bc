"""The result of a call that waits for a commit: its id is final, what becomes of it is not known yet.

Once the call is decided, the result speaks for the job that covers it: its own, or the holder's that
refused it, found through the row.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from celery.exceptions import TimeoutError as ResultTimeout
from celery.result import AsyncResult, assert_will_not_block  # type: ignore[attr-defined]

from django_jobdedup.exceptions import Undecided
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.durable import DurableStore, Fate, Found
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.results import Unavailable

#: Pauses between two looks at the row of a call that nobody has decided yet, seconds.
PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5)
#: How often one job may have given its place to the next until nobody follows further.
HOPS: Final = 10


class Awaited:
    """What is known of one deferred call in this process; its row knows the rest."""

    __slots__ = ("_by", "_id", "_outcome", "_plain", "_ref", "store")

    def __init__(self, store: DurableStore, ref: Ref, id: str, plain: Outcome | None = None) -> None:
        self.store = store
        self._ref, self._id, self._plain = ref, id, plain
        self._outcome: Outcome | None = None
        self._by = ""

    def decided(self, outcome: Outcome, by: str) -> None:
        """Note the decision; ``by`` is the task id of the job that covers this call, if it is another's."""
        self._outcome, self._by = outcome, by

    def look(self) -> tuple[Outcome, str]:
        """Return the outcome, and the task id of the job that covers this call if it is another's.

        Asks the row as long as the outcome is ``DEFERRED``, but not inside of a transaction.
        """
        if self._outcome is None and not self.store.in_transaction():
            self._read()
        return self._outcome or Outcome.DEFERRED, self._by

    def check(self) -> None:
        """Raise Undecided where waiting would never end."""
        if self._outcome is not None:
            return
        if self.store.in_transaction():
            raise Undecided(
                f"Job {task_id_of(self._id)} is not queued before the open transaction on database "
                f"{self.store.using!r} commits: ask for its result after the atomic block."
            )
        if self._read() is None:
            raise Undecided(
                f"Job {task_id_of(self._id)} was never queued: the transaction that it was called in was "
                "rolled back."
            )

    def _read(self) -> Fate | Unavailable | None:
        fate = self.store.fate(self._ref, self._id)
        if isinstance(fate, Fate):
            outcome, by = read(fate)
            if outcome is not Outcome.DEFERRED:
                self.decided(outcome if by else self._plain or outcome, by)
        return fate


def read(fate: Fate) -> tuple[Outcome, str]:
    """Return the outcome of a stored call, and the task id of the job that covers it if it is another's.

    As far as a row can tell: a call that is published without a lock is ``ACCEPTED`` to it.
    """
    if fate.state == "pending":
        return Outcome.DEFERRED, ""
    if fate.state == "superseded" or (fate.state == "dead" and fate.by):
        return Outcome.SUPPRESSED, task_id_of(fate.by)
    return Outcome.ACCEPTED, ""


def last(store: DurableStore, id: str) -> str:
    """Return the task id of the job that counts by now: the one with this id may have given its place up."""
    for _ in range(HOPS):
        found = store.seek(id)
        by = read(found.fate)[1] if isinstance(found, Found) else ""
        if not by or by == id:
            break
        id = by
    return id


def _successor(value: object) -> str:
    """The task id of the job that has taken a job's place, as the value of that one says it; else empty."""
    by = value.get("suppressed_by") if isinstance(value, dict) and len(value) == 1 else None
    return by if isinstance(by, str) else ""


if TYPE_CHECKING:
    Base = AsyncResult[Any]
else:
    Base = object


class Following(Base):
    """Laid over the result class of a task: ``outcome``, ``duplicate``, the result of the job that counts.

    The id stays what it is. ``then()``, ``forget()``, ``revoke()`` and a group's own join speak of that id.
    """

    awaited: Awaited
    fingerprint: str
    followed: Any = None
    hops = 0

    @property
    def outcome(self) -> Outcome:
        """Return what the call became; ``DEFERRED`` until it is decided."""
        return self.awaited.look()[0]

    @property
    def duplicate(self) -> bool | None:
        """Say whether another job covers this call; None until that is decided."""
        return self.outcome.duplicate

    def get(self, timeout: float | None = None, *args: Any, **kwargs: Any) -> Any:
        """Wait for the job that covers this call.

        Raises Undecided inside the transaction in which it was called, and after a rollback.
        """
        if self.ignored:
            return None
        if kwargs.get("disable_sync_subtasks", True):
            assert_will_not_block()  # as Celery: a task does not wait for another
        until = None if timeout is None else time.monotonic() + timeout
        self._wait(timeout)
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            other = self._other()
            value = (super().get if other is None else other.get)(left, *args, **kwargs)
            if not self._goes_on(value):
                return value

    wait = get

    def _wait(self, timeout: float | None) -> None:
        """Wait until the call is decided."""
        until = None if timeout is None else time.monotonic() + timeout
        pauses = iter(PAUSES)
        while self.outcome is Outcome.DEFERRED:
            self.awaited.check()
            pause = next(pauses, PAUSES[-1])
            if until is not None and time.monotonic() + pause > until:
                raise ResultTimeout("The operation timed out.")
            time.sleep(pause)

    def _other(self) -> Any:
        """The result of the job that refused this call; None if there is none."""
        by = self.awaited.look()[1]
        if by and self.followed is None:
            self.followed = self.app.AsyncResult(last(self.awaited.store, by))
        return self.followed

    def _goes_on(self, value: object) -> bool:
        """Say whether the job that was followed has given its place away meanwhile; then follow that one."""
        by = "" if self.followed is None or self.hops >= HOPS else _successor(value)
        if by:
            self.hops += 1
            self.followed = self.app.AsyncResult(last(self.awaited.store, by))
        return bool(by)

    def _get_task_meta(self) -> Any:
        other = self._other()
        if other is None:
            return super()._get_task_meta()  # type: ignore[misc]
        meta = other._get_task_meta()
        while self._goes_on(meta.get("result")):
            meta = self.followed._get_task_meta()
        return meta

    def __reduce__(self) -> Any:
        return self.app.AsyncResult(self.id).__reduce__()


@cache
def _following(base: Any) -> Any:
    return type(base.__name__, (Following, base), {})


def awaiting(app: Any, done: Dispatch, awaited: Awaited) -> Any:
    """Return the result for the caller of a deferred call."""
    options = done.call.options
    result: Any = (options.get("result_cls") or app.AsyncResult)(done.id)
    result.ignored = options.get("ignore_result")
    if not isinstance(result, AsyncResult):  # a result class of the project's own
        result.outcome, result.duplicate, result.fingerprint = done.outcome, None, done.fingerprint
        return result
    kind: Any = type(result)
    following: Any = result
    following.__class__ = _following(kind)
    following.awaited, following.fingerprint = awaited, done.fingerprint
    return following
