"""The exception family.

::

    JobDedupError
    ├── PolicyError            (also ValueError)  a declaration that cannot work
    ├── FingerprintError       (also TypeError)   an argument without a canonical form
    ├── StoredCallError        (also ValueError)  a call that cannot be written down or read again
    ├── Undecided              (also RuntimeError)  a result asked for before its call was decided
    ├── DuplicateDispatch                         a refused call, under the strategy ``raise``
    ├── BulkError                                 some calls of a dispatch_many() were not queued
    ├── LockLost                                  a running body no longer holds its lock
    ├── LockInUse                                 a running holder's lock is not released without force
    ├── JobLost                                   a run that ended without a word, stored as its result
    ├── JobDead                                   a job that was given up, stored as its result
    ├── WinnerFailed                              the job that this one follows failed in a way of its own
    ├── StoreUnavailable                          the lock store cannot be reached
    └── TransactionConflict                       the database has ended the caller's transaction

The class docstring is the message when none is given. Every error survives pickling and a JSON result
backend, which makes it again from ``args``: so ``args`` are the message and all attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class JobDedupError(Exception):
    """Something went wrong in django_jobdedup."""

    def __init__(self, message: str | None = None, *attributes: object) -> None:
        super().__init__(message if message is not None else (self.__doc__ or ""), *attributes)

    def __str__(self) -> str:
        return str(self.args[0])


class PolicyError(JobDedupError, ValueError):
    """A policy that cannot work; the message says what to write instead."""


class FingerprintError(JobDedupError, TypeError):
    """An argument has no canonical form, so equal calls could not be recognised.

    Raised before any lock is taken. Attribute ``argument`` names it, as ``tenant`` or ``rows[3].owner``.
    """

    def __init__(self, message: str | None = None, argument: str | None = None) -> None:
        super().__init__(message, argument)
        self.argument = argument


class StoredCallError(JobDedupError, ValueError):
    """A call cannot be written down in a durable store, or a stored one cannot be read again.

    Raised before anything is written; the message names the argument or option.
    """


class Undecided(JobDedupError, RuntimeError):  # noqa: N818 - a fact, as the field names it
    """A result was asked for whose call waits for the commit of a transaction, or went with its rollback."""


class DuplicateDispatch(JobDedupError):  # noqa: N818 - a fact, as the field names it
    """An equal job is already in flight; this call was not queued.

    Raised by the strategy ``raise`` to a caller in a view or a task body. Attribute ``holder_id``
    is the Celery task id of the job that holds the lock, ``fingerprint`` its fingerprint.
    """

    def __init__(self, message: str | None = None, holder_id: str = "", fingerprint: str = "") -> None:
        super().__init__(message, holder_id, fingerprint)
        self.holder_id = holder_id
        self.fingerprint = fingerprint


class BulkError(JobDedupError):
    """Some calls of a ``dispatch_many()`` were not queued; the others were.

    Attribute ``errors`` is a dict from the number of a call (counted from 0) to its exception,
    ``results`` the list of results, None for a call with an error.
    """

    def __init__(
        self,
        message: str | None = None,
        errors: Mapping[int, BaseException] | None = None,
        results: Sequence[Any] = (),
    ) -> None:
        super().__init__(message, errors, results)
        self.errors = dict(errors or {})
        self.results = list(results)


class LockLost(JobDedupError):  # noqa: N818
    """The lock of this execution lapsed and belongs to somebody else now: do not write."""


class LockInUse(JobDedupError):  # noqa: N818
    """The lock's holder runs, or others have joined it, so the lock is not released.

    Attribute ``holder_id`` is its Celery task id, ``fingerprint`` the lock's.
    """

    def __init__(self, message: str | None = None, holder_id: str = "", fingerprint: str = "") -> None:
        super().__init__(message, holder_id, fingerprint)
        self.holder_id = holder_id
        self.fingerprint = fingerprint


class JobLost(JobDedupError):  # noqa: N818
    """The worker of this job vanished during the run, and its message is gone: nobody runs it again.

    Never raised: the reaper stores it as the job's result, so that nobody waits for ever. Attribute
    ``task_id`` is the job's, ``worker`` the process that claimed it, as far as known.
    """

    def __init__(self, message: str | None = None, task_id: str = "", worker: str = "") -> None:
        super().__init__(message, task_id, worker)
        self.task_id = task_id
        self.worker = worker


class JobDead(JobDedupError):  # noqa: N818
    """This job was given up: rejected, put off too often, or started too often.

    It is in the list of dead jobs. Raised at its start, so that its error callbacks are called. Attribute
    ``task_id`` is the job's, ``reason`` says why.
    """

    def __init__(self, message: str | None = None, task_id: str = "", reason: str = "") -> None:
        super().__init__(message, task_id, reason)
        self.task_id = task_id
        self.reason = reason


class WinnerFailed(JobDedupError):  # noqa: N818
    """The job that this one follows ended with an error that cannot be raised here.

    A lost process, a MemoryError, a Reject: raised in another job, Celery would take them for that job's
    own. Any other error is raised as it is. Attribute ``task_id`` is the id of the job that failed.
    """

    def __init__(self, message: str | None = None, task_id: str = "") -> None:
        super().__init__(message, task_id)
        self.task_id = task_id


class StoreUnavailable(JobDedupError):  # noqa: N818
    """The lock store cannot be reached and the policy says on_store_error="raise"."""


class TransactionConflict(JobDedupError):  # noqa: N818
    """The database has ended this transaction (deadlock, serialization failure, lock wait): run it anew.

    Raised only inside a transaction of the caller's, where nobody else can begin it again.
    """

    def __init__(self, message: str | None = None) -> None:
        super().__init__(
            message
            or "The database has ended this transaction because of another one (deadlock, serialization "
            "failure or lock wait). Nothing of it is kept: run the whole transaction again, or keep it "
            "shorter and dispatch at its end."
        )
