"""Lock types by name."""

from __future__ import annotations

from typing import Final

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.lock_types.base import LockType
from django_jobdedup.lock_types.until_and_while_executing import UNTIL_AND_WHILE_EXECUTING
from django_jobdedup.lock_types.until_executed import UNTIL_EXECUTED
from django_jobdedup.lock_types.until_executing import UNTIL_EXECUTING
from django_jobdedup.lock_types.until_expired import UNTIL_EXPIRED
from django_jobdedup.lock_types.while_executing import WHILE_EXECUTING
from django_jobdedup.suggestion import suggest

LOCK_TYPES: Final = {
    each.name: each
    for each in (UNTIL_EXECUTING, UNTIL_EXECUTED, UNTIL_EXPIRED, WHILE_EXECUTING, UNTIL_AND_WHILE_EXECUTING)
}


def lock_type(name: object) -> LockType:
    """Return the lock type of that name.

    Raises PolicyError for an unknown name, with the known ones, and for a lock type of one's own.
    """
    if isinstance(name, str):
        if name in LOCK_TYPES:
            return LOCK_TYPES[name]
        if "." not in name:
            raise PolicyError(f'There is no lock type "{name}"; {suggest(name, LOCK_TYPES)}')
    elif not isinstance(name, type | LockType):
        raise PolicyError(f"A lock type is given by its name, not as {name!r}; {suggest('', LOCK_TYPES)}")
    raise PolicyError(
        f"Own lock types are not built yet, so {name!r} cannot be used; {suggest('', LOCK_TYPES)}"
    )
