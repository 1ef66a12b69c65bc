"""Lock types by name, and those of a project's own by class or dotted path."""

from __future__ import annotations

from typing import Final

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.lock_types.base import LockType
from django_jobdedup.lock_types.own import own_lock_type
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
#: The likeliest slip: a key in the place of the lock.
KEY: Final = "Which arguments count is written key=..."
#: Those of the project's own that were used so far, by dotted path.
_own: Final[dict[str, LockType]] = {}


def lock_type(value: object) -> LockType:
    """Return the lock type that a name, a class of one's own or its dotted path means.

    Raises PolicyError for an unknown name, with the known ones, and for a class that cannot be one.
    """
    if isinstance(value, str):
        found = LOCK_TYPES.get(value) or _own.get(value)
        if found is not None:
            return found
        if "." not in value:
            raise PolicyError(f'There is no lock type "{value}"; {suggest(value, LOCK_TYPES)} {KEY}')
    elif not isinstance(value, type):
        raise PolicyError(
            f"A lock type is given by its name, or as a class of your own, not as {value!r}; "
            f"{suggest('', LOCK_TYPES)} {KEY}"
        )
    own = own_lock_type(value)
    return _own.setdefault(own.name, own)
