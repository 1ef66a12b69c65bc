"""Finding the lock that a signature, a task with arguments, a result, a fingerprint or an id means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from celery import Task, current_app
from celery.canvas import Signature
from celery.result import AsyncResult

from django_jobdedup.control.lock import Lock, shown
from django_jobdedup.dispatching.hook import OPTIONS, policy_for
from django_jobdedup.dispatching.routes import queue_of
from django_jobdedup.exceptions import PolicyError, StoreUnavailable
from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Record, Ref
from django_jobdedup.stores.results import Unavailable

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
#: Records that are read at once while all locks are looked through.
PAGE: Final = 500


def lock_of(what: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Lock | None:
    """Return the lock that is meant, as the store shows it now; None where nobody holds it.

    Raises StoreUnavailable, PolicyError for a task without a policy, and what a dispatch of the same call
    raises.
    """
    if isinstance(what, Lock):
        return at(what.store, what.ref)
    if isinstance(what, AsyncResult):
        return _by_fingerprint(_fingerprint_of(what))
    if is_fingerprint(what):
        return _by_fingerprint(what)
    alias, ref = address_of(*_call_of(what, args, kwargs))
    return at(alias, ref)


def _fingerprint_of(result: AsyncResult[Any]) -> str:
    found = getattr(result, "fingerprint", "")
    if not found:
        raise TypeError(
            f"{result!r} does not know its lock: it was restored from an id, or its call had no policy. "
            "Give the signature, or the task with its arguments."
        )
    return str(found)


def is_fingerprint(what: object) -> bool:
    """Say whether this is the text of a fingerprint."""
    return isinstance(what, str) and _FINGERPRINT.fullmatch(what) is not None


def at(alias: str, ref: Ref) -> Lock | None:
    """Return the lock at an address."""
    return shown(alias, checked(alias, stores[alias].inspect(ref)))


def checked(alias: str, answer: Any) -> Any:
    """Return what a store has answered. Raises StoreUnavailable where it has not."""
    if isinstance(answer, Unavailable):
        raise StoreUnavailable(f"The lock store {alias!r} does not answer ({answer.error}).")
    return answer


def _by_fingerprint(fingerprint: str) -> Lock | None:
    """Only the lock name tells the shard: every shard is asked."""
    for alias in stores:
        for shard in range(stores[alias].shards):
            if (found := at(alias, Ref(shard, fingerprint))) is not None:
                return found
    return None


def _call_of(
    what: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> tuple[str, Any, tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    if isinstance(what, Signature) and not what.get("subtask_type"):
        signature: Any = what  # its annotations miss the merge
        given, named, options = signature._merge(tuple(args), dict(kwargs or {}))
        return what["task"], what.app, tuple(given), dict(named), dict(options)
    if isinstance(what, Task):
        return what.name, what.app, tuple(args), dict(kwargs or {}), {}
    raise TypeError(
        f"{what!r} stands for no lock: give a signature of a task (build_report.s(42)), a task with its "
        "arguments, the result of a call, or a fingerprint of 64 characters."
    )


def address_of(
    name: str, app: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
) -> tuple[str, Ref]:
    """Return the store and the record of a call, worked out as its dispatch would."""
    task = app.tasks.get(name)
    policy = policy_for(name, task, {each: options[each] for each in OPTIONS if each in options})
    if not isinstance(policy, Unique):
        raise PolicyError(f"{name} has no policy, so there is no lock: write unique= on the task.")
    own = dict(task._get_exec_options()) if task is not None else {}
    routed = {**own, **{each: value for each, value in options.items() if each not in OPTIONS}}
    queue = queue_of(app, name, args, kwargs, {**routed, "task_type": task})
    identity = identify(policy, name, task, args, kwargs, queue)
    if identity is None:
        raise PolicyError(
            f"{name} is not known in this process, so its lock cannot be worked out: import the task's "
            "module, or give the fingerprint."
        )
    return policy.store, Ref(identity.shard, identity.fingerprint)


def looked_through(store: Store) -> Iterator[Record]:
    """Give every record of a store, by rising moment of attention; reads all of them."""
    for shard in range(store.shards):
        after, limit, seen = 0.0, PAGE, set[str]()
        while True:
            page = checked(store.alias, store.list_locks(shard, after, limit))
            news = [record for record in page if record.ref.fingerprint not in seen]
            yield from news
            if len(page) < limit:
                break
            seen.update(record.ref.fingerprint for record in page)
            limit = PAGE if page[-1].attention > after else 2 * limit  # many at one moment
            after = page[-1].attention


def app_of(what: Any) -> Any:
    """Return the Celery app of a signature, a task or a result."""
    return getattr(what, "app", None) or current_app
