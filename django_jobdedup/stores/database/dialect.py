"""What differs between engines: the clock, a SELECT from nothing, which errors mean "try again"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import Error


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine.

    ``clock`` is an expression: microseconds since the epoch by the server's wall clock at that statement,
    not at the beginning of its transaction. ``nothing`` is what a SELECT with a WHERE but without a table
    selects from. ``derived``: a statement that writes a table reads it through a derived table only.
    """

    clock: str
    quote: str = '"'
    nothing: str = ""
    derived: bool = False

    def name(self, name: str) -> str:
        """Return an identifier, quoted."""
        return f"{self.quote}{name}{self.quote}"


DIALECTS: Final = {
    # Not clock_timestamp(): it may change within a statement, which keeps the planner off every index.
    "postgresql": Dialect("(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint"),
    # UTC, because the session's time zone may have an hour twice.
    "mysql": Dialect(
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))", "`", " FROM DUAL", derived=True
    ),
    "sqlite": Dialect(
        "(CAST(strftime('%%s', 'now') AS INTEGER) * 1000000"
        " + CAST(substr(strftime('%%f', 'now'), 4) AS INTEGER) * 1000)"
    ),
}


def dialect_of(connection: Any, store: str) -> Dialect:
    """Return the dialect of a connection; raises ImproperlyConfigured if the engine is not supported."""
    try:
        return DIALECTS[connection.vendor]
    except KeyError:
        raise ImproperlyConfigured(
            f"JOBDEDUP_STORES[{store!r}]: the database store does not work on {connection.display_name} "
            f"(alias {connection.alias!r}). Use PostgreSQL, MySQL, MariaDB or SQLite, or keep the locks in "
            "Redis."
        ) from None


#: MySQL: lock wait timeout, deadlock, the same over the next primary key, MariaDB's "record has changed since
#: last read", and the limits of a statement's time of both, which mostly went with waiting for a lock.
BUSY_NUMBERS: Final = frozenset({1020, 1205, 1213, 1467, 1969, 3024})
#: SQLSTATE: serialization failure, deadlock, lock not available, a statement over its time.
BUSY_STATES: Final = frozenset({"40001", "40P01", "55P03", "57014"})


def is_busy(error: Error) -> bool:
    """Say whether the database chose this statement as the victim of a conflict: a deadlock, a busy file."""
    cause: Any = error.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    number = error.args[0] if error.args else None
    words = str(error)
    return (
        state in BUSY_STATES
        or number in BUSY_NUMBERS
        or "database is locked" in words
        or ("database table is locked" in words)
    )


def explained(error: Error, using: str) -> str:
    """Return the text of an error; where the tables were never made, with the command that makes them."""
    words = f"{type(error).__name__}: {error}"
    return f"{words}; {migrate(using)}" if lacks_tables(error) else words


def migrate(using: str) -> str:
    """Return what to run where the tables are missing."""
    return f"run: manage.py migrate jobdedup --database {using}"


def lacks_tables(error: Error) -> bool:
    """Say whether a statement failed because the tables were never made."""
    state = getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)
    return state == "42P01" or error.args[:1] == (1146,) or "no such table" in str(error)
