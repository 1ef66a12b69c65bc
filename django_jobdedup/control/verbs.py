"""Looking at a lock, freeing it, and calling a job off, from code: ``peek``, ``release``, ``cancel``."""

from __future__ import annotations

import logging
from typing import Any

from celery.result import AsyncResult

from django_jobdedup import signals
from django_jobdedup.control.finding import app_of, at, checked, is_fingerprint, lock_of, looked_through
from django_jobdedup.control.lock import Lock, LockHolder, shown
from django_jobdedup.exceptions import LockInUse
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware.keeping import durable
from django_jobdedup.middleware.observing import PREFIX
from django_jobdedup.middleware.visibility import visibility_timeout
from django_jobdedup.stores.durable import Found
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record, Ref
from django_jobdedup.stores.requests import Withdraw
from django_jobdedup.stores.results import Withdrawn

logger = logging.getLogger("django_jobdedup")


def peek(what: Any, *args: Any, **kwargs: Any) -> Lock | None:
    """Return who holds the lock of a call, or None: ``peek(build_report, 42)``, ``peek(build_report.s(42))``.

    ``what`` may be a result or a fingerprint as well, then every shard is asked. Changes nothing. Raises
    StoreUnavailable, PolicyError for a task without a policy, and what a dispatch of the call raises.
    """
    return lock_of(what, args, kwargs)


def release(what: Any, *args: Any, force: bool = False, **kwargs: Any) -> tuple[LockHolder, ...]:
    """Free a lock, whoever holds it, and return the holders that were removed.

    ``what`` is what ``peek`` takes (of a task with an argument ``force``, its signature), or a ``Lock`` that
    ``peek`` has shown: then exactly what was shown is removed, and a holder that has changed since stays. A
    waiting message is not withdrawn: it runs when its turn comes (``cancel`` calls it off).

    Raises LockInUse, and removes nothing, if one of the holders runs, or calls have joined one that waits,
    unless ``force`` is True: then another job may run beside it, and nobody runs what those calls have said.
    """
    lock = what if isinstance(what, Lock) else lock_of(what, args, kwargs)
    if lock is None:
        return ()
    if not force:
        _check_unused(lock)
    store = stores[lock.store]
    removed = tuple(
        holder
        for holder in lock.holders
        if isinstance(checked(lock.store, store.remove(lock.ref, holder.shown)), Withdrawn)
    )
    for holder in removed:
        _log("released by hand", lock, holder)
    return removed


def _check_unused(lock: Lock) -> None:
    """Raise LockInUse where more would go with the lock than the lock."""
    for holder in lock.running:
        if holder.alive:
            raise LockInUse(
                f"Job {holder.id} runs under this lock since {holder.since:%Y-%m-%d %H:%M:%S} UTC "
                f"({holder.by}), so an equal job could run beside it. Wait for its end, revoke it, or write "
                "force=True.",
                holder_id=holder.id,
                fingerprint=lock.fingerprint,
            )
    for holder in lock.waiting:
        if holder.merged:  # the newest arguments live in the holder alone
            raise LockInUse(
                f"Job {holder.id} waits under this lock, and calls have joined it ({holder.merged}): "
                "without the lock it runs with its own arguments, and nobody runs with theirs. Let it run: "
                "the next call joins it as well. Call them all off with cancel(), or write force=True.",
                holder_id=holder.id,
                fingerprint=lock.fingerprint,
            )


def cancel(what: Any, *args: Any, **kwargs: Any) -> tuple[str, ...]:
    """Call off jobs that have not started, and return their task ids; running ones are left alone.

    ``what`` is a signature, a task with its arguments or a fingerprint (every job that waits under its lock),
    a result, or a task id;
    an id that no durable store knows is looked for among all locks. The lock is free, the message ends
    without a run when it comes, and the result is revoked: ``get()`` raises ``TaskRevokedError``.
    """
    if isinstance(what, AsyncResult):
        return _cancel_id(what.app, what.id, getattr(what, "fingerprint", ""))
    if isinstance(what, str) and not is_fingerprint(what):
        return _cancel_id(app_of(what), what, "")
    lock = lock_of(what, args, kwargs)
    if lock is None:
        return ()
    return tuple(each.id for each in lock.waiting if _withdrawn(app_of(what), lock, each))


def _cancel_id(app: Any, id: str, fingerprint: str) -> tuple[str, ...]:
    kept = _kept(id)
    lock = at(*kept[:2]) if kept else (lock_of(fingerprint) if fingerprint else None) or _search(id)
    for holder in lock.waiting if lock is not None else ():
        if lock is not None and holder.id == id:
            return (id,) if _withdrawn(app, lock, holder) else ()
    if kept is None or kept[2].fate.state != "pending":
        return ()
    # Nobody has decided it: its row waits for a commit, without a seat.
    alias, ref, found = kept
    request = Withdraw(ref, found.id, waiting=True, marker_ttl=2 * visibility_timeout(app), reason="revoked")
    return (id,) if _is_off(app, alias, id, request) else ()


def _kept(id: str) -> tuple[str, Ref, Found] | None:
    """The place of a call that a durable store keeps."""
    for alias in stores if stores.keep_calls else ():
        store = durable(alias)
        found = checked(alias, store.seek(id)) if store is not None else None
        if isinstance(found, Found):
            return alias, found.ref, found
    return None


def _search(id: str) -> Lock | None:
    for alias in stores:
        for record in looked_through(stores[alias]):
            if not record.name.startswith(PREFIX) and any(
                task_id_of(each.id) == id for each in record.holders
            ):
                return shown(alias, record)
    return None


def _withdrawn(app: Any, lock: Lock, holder: LockHolder) -> bool:
    """Close the id for as long as its message may come, then tell who waits for the result."""
    token, store = holder.shown.id, stores[lock.store]
    seen = checked(lock.store, store.inspect(lock.ref, token))
    now = seen.now if isinstance(seen, Record) else 0.0
    marker = seen.marker if isinstance(seen, Record) else None
    request = Withdraw(
        Ref(lock.ref.shard, lock.fingerprint),
        token,
        n=marker.n + 1 if marker is not None else 0,
        waiting=True,
        marker_ttl=max(0.0, holder.shown.due - now) + max(holder.shown.ttl, 2 * visibility_timeout(app)),
        reason="revoked",
    )
    if not _is_off(app, lock.store, holder.id, request):
        return False
    _log("cancelled", lock, holder)
    return True


def _is_off(app: Any, alias: str, id: str, request: Withdraw) -> bool:
    if not isinstance(checked(alias, stores[alias].withdraw(request)), Withdrawn):
        return False
    try:
        app.backend.mark_as_revoked(id, "cancelled", store_result=True)
    except Exception as error:  # a backend that is down, or that only workers can write to (rpc://)
        signals.report("control.cancel", error)
    return True


def _log(what: str, lock: Lock, holder: LockHolder) -> None:
    logger.info(
        "job %s of lock %s (%s) is %s",
        holder.id,
        lock.fingerprint[:12],
        lock.name,
        what,
        extra={"action": "by_hand", "task_id": holder.id, "fingerprint": lock.fingerprint},
    )
