"""The isolation level of the store's own transactions on MySQL and MariaDB: one that locks no gaps.

Under ``REPEATABLE READ`` and ``SERIALIZABLE`` a statement there locks the gaps between rows as well, and
waits for whoever has written into one: a call would wait for the end of a stranger's transaction that is
about another key. What the store decides rests on unique columns and row counts, so ``READ COMMITTED`` is
enough. It is asked for one transaction at a time: the session keeps its level.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

#: Django's own default.
ENOUGH: Final = "read committed"
NEXT: Final = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"

_may: Final[WeakKeyDictionary[Any, bool]] = WeakKeyDictionary()


def lower(connection: Any) -> None:
    """Have the next transaction of an open connection, or the one that has just begun, lock no gaps."""
    if connection.vendor != "mysql" or connection.isolation_level == ENOUGH:
        return
    if _can_be_lowered(connection):
        with connection.cursor() as cursor:
            cursor.execute(NEXT)


def _can_be_lowered(connection: Any) -> bool:
    """Whether the server takes writes at that level: not where its binary log holds statements."""
    if connection not in _may:
        with connection.cursor() as cursor:
            cursor.execute("SHOW VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')")
            found = dict(cursor.fetchall())
        _may[connection] = (found.get("log_bin"), found.get("binlog_format")) != ("ON", "STATEMENT")
    return _may[connection]
