"""What a call is: scope, lock name and key of its policy, as one fingerprint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from django_jobdedup.conf import conf
from django_jobdedup.exceptions import FingerprintError
from django_jobdedup.fingerprint.digest import fingerprint, shard_of, text_of
from django_jobdedup.fingerprint.key import key_text
from django_jobdedup.fingerprint.scope import resolve_scope

if TYPE_CHECKING:
    from django_jobdedup.policies.unique import Unique


@dataclass(frozen=True, slots=True)
class Identity:
    """The fingerprint of a call with the text it was made from, its lock name and its shard."""

    fingerprint: str
    text: str
    lock_name: str
    shard: int


_import = cache(import_string)


def _tenant() -> Callable[[], object]:
    scope = conf.SCOPE
    function: Callable[[], object] = _import(scope) if isinstance(scope, str) else scope
    return function


def identify(
    policy: Unique,
    task: str,
    task_object: Any,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    queue: str,
) -> Identity | None:
    """Return the identity of a call; None if only a process that knows the task can tell.

    ``task_object`` is the task where this process knows it, else None. Raises FingerprintError, which
    names the task, for an argument or a scope without a canonical form and for a key that names no
    argument, and the call's own TypeError if the arguments do not fit.
    """
    try:
        return _identify(policy, task, task_object, args, kwargs, queue)
    except FingerprintError as error:
        raise FingerprintError(f"{task}: {error}", argument=error.argument) from None


def _identify(
    policy: Unique,
    task: str,
    task_object: Any,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    queue: str,
) -> Identity | None:
    function = None if task_object is None else task_object.run
    if function is None and policy.key is None:
        return None
    try:
        key = key_text(function, args, kwargs, policy.key, task)
    except FingerprintError:
        if function is None:
            return None
        raise
    scope = resolve_scope(policy.scope, queue=queue, tenant=_tenant(), args=args, kwargs=kwargs, task=task)
    lock_name = policy.lock_name or task
    text = text_of(scope, lock_name, key)
    return Identity(
        fingerprint(text, conf.FINGERPRINT_SECRET), text, lock_name, shard_of(lock_name, conf.SHARDS)
    )
