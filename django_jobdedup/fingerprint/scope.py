"""Where work belongs: a tenant, a queue, both, or nowhere in particular; the option ``scope``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from django_jobdedup.exceptions import FingerprintError, PolicyError
from django_jobdedup.fingerprint.callback import ask
from django_jobdedup.fingerprint.canonical import canonical

#: ``"tenant"``, ``"queue"``, a tuple of these, of constants and of callables, None (global), a callable.
Scope: TypeAlias = str | Sequence[object] | Callable[..., object] | None

WORDS = ("tenant", "queue")


def check_scope(scope: object) -> None:
    """Refuse what can never be a scope. Raises PolicyError (a ValueError)."""
    if inspect.iscoroutinefunction(scope):
        raise PolicyError("scope is an async function; write a plain function that returns the value.")
    if scope is None or callable(scope) or scope in WORDS:
        return
    if not isinstance(scope, list | tuple):
        raise PolicyError(
            f'scope={scope!r} cannot be used; write "tenant", "queue", None for one scope over everything, '
            'a tuple of these and of constants such as ("tenant", "reports"), or a function of the '
            "task's arguments."
        )
    for part in scope:
        _check_part(part)


def _check_part(part: object) -> None:
    if callable(part):
        return check_scope(part)
    try:
        canonical(part, "scope")
    except FingerprintError as error:
        raise PolicyError(f"scope has a part that cannot be a constant: {error}") from None


def resolve_scope(
    scope: Scope,
    *,
    queue: str,
    tenant: Callable[[], object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    task: str = "",
) -> object:
    """Return the value that stands for the scope of one call.

    ``"tenant"`` and ``"queue"`` are returned under their names, so that a tenant and a queue of one name
    differ. ``tenant`` is the function of the setting JOBDEDUP_SCOPE, without arguments; a scope that is
    callable gets the task's own. Their exceptions pass, with a note that names the task.
    """
    if scope == "tenant":
        return {"tenant": ask(tenant, (), {}, f"raised by JOBDEDUP_SCOPE for task {task}")}
    if scope == "queue":
        return {"queue": queue}
    if callable(scope):
        return ask(scope, args, kwargs, f"raised by the scope function of task {task}")
    if isinstance(scope, list | tuple):
        return [
            resolve_scope(part, queue=queue, tenant=tenant, args=args, kwargs=kwargs, task=task)
            for part in scope
        ]
    return scope


def default_tenant() -> str:
    """Return the schema of the default database connection, as django-tenants sets it; else an empty text."""
    from django.db import DEFAULT_DB_ALIAS, connections

    return str(getattr(connections[DEFAULT_DB_ALIAS], "schema_name", None) or "")
