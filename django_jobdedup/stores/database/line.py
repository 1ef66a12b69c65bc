"""The line to the database: one question, tried again while others are faster, and never an exception.

Whatever goes wrong outside a user's transaction becomes ``Unavailable``, opens the breaker if the
database cannot be reached, and sends ``store_unavailable``. Inside one a conflict is raised: the database
has ended the transaction, and only its owner can begin it anew.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from django.db import (
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
    router,
    transaction,
)
from django.db.transaction import TransactionManagementError

from django_jobdedup import signals
from django_jobdedup.exceptions import TransactionConflict
from django_jobdedup.models import JobIntent
from django_jobdedup.stores.breaker import Breaker
from django_jobdedup.stores.database.dialect import (
    Dialect,
    dialect_of,
    explained,
    is_busy,
    lacks_tables,
    migrate,
)
from django_jobdedup.stores.database.forking import unforked
from django_jobdedup.stores.database.isolation import lower
from django_jobdedup.stores.results import Unavailable

T = TypeVar("T")

#: How often a step is decided anew because somebody was faster.
TRIES: Final = 30
#: How often it is taken again because the database was busy: each such try may have waited for a timeout.
BUSY_TRIES: Final = 6
#: How long it is tried again in all, seconds.
BUSY_TIME: Final = 10.0
#: The longest pause between two tries, seconds.
PAUSE: Final = 0.1


class Conflict(Exception):  # noqa: N818 - a fact
    """A row is not any more what the decision rests on."""


def is_open(connection: Any) -> bool:
    """Say whether a connection has an open transaction; does not connect for it."""
    if connection.in_atomic_block:
        return True
    by_itself = (
        connection.settings_dict["AUTOCOMMIT"] if connection.connection is None else connection.autocommit
    )
    return not by_itself


def is_lost(connection: Any) -> bool:
    """Say whether a connection that has just failed cannot be used any more, or could not be made.

    Whatever else fails is that statement's own: other locks are asked for on.
    """
    return bool(connection.connection is None or is_open(connection) or not connection.is_usable())


class Sql:
    """One connection at work: statements with the clock in them."""

    def __init__(self, connection: Any, dialect: Dialect, clock: str) -> None:
        self.connection, self.dialect, self.clock = connection, dialect, clock

    @property
    def milliseconds(self) -> str:
        """Return an expression: the server's time in whole milliseconds."""
        return f"({self.clock}) DIV 1000" if self.dialect.derived else f"({self.clock}) / 1000"

    @property
    def alone(self) -> bool:
        """Say whether a statement is a transaction of its own."""
        return not is_open(self.connection)

    def rows(self, text: str, words: list[Any]) -> list[tuple[Any, ...]]:
        """Ask."""
        with self.connection.cursor() as cursor:
            cursor.execute(text, words)
            return list(cursor.fetchall())

    def write(self, text: str, words: list[Any]) -> int:
        """Write, and return the number of rows that matched."""
        with self.connection.cursor() as cursor:
            if self.alone:
                lower(self.connection)
            cursor.execute(text, words)
            return int(cursor.rowcount)

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Take what follows as one step: a transaction, or a savepoint of the user's."""
        own = self.alone
        with transaction.atomic(using=self.connection.alias):
            if own:
                lower(self.connection)
            yield


class Line:
    """Asks one database, through a breaker.

    ``location`` is its alias; empty: what the routers say. ``clock`` gives an expression in the place of
    the server's clock; the tests move it.
    """

    def __init__(
        self, store: str, location: str, breaker: Breaker, clock: Callable[[], str] | None = None
    ) -> None:
        self.store, self.location, self.breaker, self.clock = store, location, breaker, clock

    @property
    def using(self) -> str:
        """Return the alias of the database."""
        return self.location or router.db_for_write(JobIntent)

    @property
    def connection(self) -> Any:
        """Return this thread's connection."""
        return connections[self.using]

    def run(self, verb: str, work: Callable[[Sql], T]) -> T | Unavailable:
        """Take a step: again while others are faster, or once more on a new connection."""
        if self.breaker.refuses():
            return Unavailable(self.breaker.error)
        sql = self._sql()
        tries = Tries(sql)
        while True:
            try:
                with unforked(sql.connection, alone=sql.alone):
                    answer = work(sql)
            except (Conflict, Error) as error:
                if not tries.once_more(error):
                    return self._failed(verb, error)
                continue
            self.breaker.worked()
            return answer

    def raw(self, work: Callable[[Sql], T]) -> T:
        """Take a step once, and let every error pass: the transaction is the caller's.

        Raises TransactionConflict where the database has ended it because of another one.
        """
        try:
            return work(self._sql())
        except Error as error:
            if is_busy(error):
                raise TransactionConflict() from error
            if not lacks_tables(error):
                raise
            raise type(error)(f"{error}; {migrate(self.using)}") from error

    def _sql(self) -> Sql:
        connection = self.connection
        dialect = dialect_of(connection, self.store)
        return Sql(connection, dialect, self.clock() if self.clock else dialect.clock)

    def _failed(self, verb: str, error: Exception) -> Unavailable:
        words = f"{type(error).__name__}: {error}"
        if isinstance(error, Conflict) or (isinstance(error, Error) and is_busy(error)):
            words = f"others were faster, {TRIES} times in a row: {words}"
        elif isinstance(error, Error) and lacks_tables(error):
            words = explained(error, self.using)
        elif isinstance(error, OperationalError | InterfaceError) and is_lost(self.connection):
            self.breaker.failed(words)
        signals.send(signals.store_unavailable, None, store=self.store, verb=verb, error=words)
        return Unavailable(words)


class Tries:
    """How often one step has been tried, and whether it may be once more."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._used = sql.connection.connection
        self._conflicts = self._busy = 0
        self._reconnected = False
        self._began = time.monotonic()

    def once_more(self, error: Exception) -> bool:
        """Wait a little and say yes, or say no.

        Raises TransactionConflict, TransactionManagementError or DataError where only the caller can help.
        """
        if isinstance(error, TransactionManagementError | DataError):
            raise error
        if isinstance(error, Conflict | IntegrityError):
            self._conflicts += 1
            return self._wait(self._conflicts, TRIES, error)
        if isinstance(error, Error) and is_busy(error):
            if not self._sql.alone:
                raise TransactionConflict() from error
            self._busy += 1
            in_time = time.monotonic() < self._began + BUSY_TIME
            return self._wait(self._busy, BUSY_TRIES if in_time else 0, error)
        return self._reconnect(error)

    def _wait(self, number: int, most: int, error: Exception) -> bool:
        if number >= most:
            if not self._sql.alone:
                raise TransactionConflict() from error
            return False
        if number > 1:
            time.sleep(random.uniform(0, min(0.001 * 2**number, PAUSE)))
        return True

    def _reconnect(self, error: Exception) -> bool:
        """Open a new connection in the place of one that broke: a restart.

        What the step has committed perhaps, is found and answered alike.
        """
        if (
            not isinstance(error, OperationalError | InterfaceError)
            or self._reconnected
            or is_open(self._sql.connection)
            or not self._broke()
        ):
            return False
        self._reconnected = True
        self._sql.connection.close()
        if pool := getattr(self._sql.connection, "pool", None):
            # It may hold nothing but connections to the server of before. Before 3.3 it has to ask each.
            getattr(pool, "drain", pool.check)()
        return True

    def _broke(self) -> bool:
        """Say whether the step has lost a connection; Django replaces one that broke in a transaction."""
        now = self._sql.connection.connection
        if now is None:  # none can be made
            return False
        return (self._used is not None and now is not self._used) or not self._sql.connection.is_usable()
