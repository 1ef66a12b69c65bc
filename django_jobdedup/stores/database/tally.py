"""Counting answers without a statement for each: numbers wait in the process and are added in batches."""

from __future__ import annotations

import threading
import time
from collections import Counter as Numbers
from typing import Final

from django_jobdedup.models import Counter
from django_jobdedup.stores.database import statements
from django_jobdedup.stores.database.line import Line, Sql
from django_jobdedup.stores.database.rows import key_of

#: How long numbers wait for others, seconds. A process that is killed forgets those of that time.
WAIT: Final = 10.0
#: Most numbers of one statement.
BATCH: Final = 100
TABLE: Final = Counter._meta.db_table
NAMES: Final = ("key", "name", "what", "number")


class Tally:
    """The numbers of this process that are not in the database yet."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.reset()

    def reset(self) -> None:
        """Forget everything. A forked child does: these are its parent's numbers."""
        self._numbers: Numbers[tuple[str, str]] = Numbers()
        self._lock = threading.Lock()
        self._since = time.monotonic()

    def add(self, numbers: Numbers[tuple[str, str]]) -> None:
        """Count, and write now and then; never in a user's transaction, which would keep the rows locked."""
        if not numbers:
            return
        with self._lock:
            self._numbers.update(numbers)
            late = time.monotonic() - self._since > WAIT
        if late and not self._line.connection.in_atomic_block:
            self.flush()

    def flush(self) -> bool:
        """Write what waits; keep it if the database does not answer."""
        with self._lock:
            numbers, self._numbers = self._numbers, Numbers()
            self._since = time.monotonic()
        if not numbers:
            return True
        if self._line.run("counters", lambda sql: _add(sql, numbers)) is None:
            return True
        with self._lock:
            self._numbers.update(numbers)
        return False


def _add(sql: Sql, numbers: Numbers[tuple[str, str]]) -> None:
    """Add numbers, in one order for all processes; what is written is taken out."""
    order = sorted(numbers, key=_key)
    for start in range(0, len(order), BATCH):
        some = order[start : start + BATCH]
        words = [
            word for name, what in some for word in (_key((name, what)), name, what, numbers[name, what])
        ]
        text = statements.upsert(sql.dialect, TABLE, NAMES, "number", len(some), more=True)
        sql.write(text, words)
        for pair in some:
            del numbers[pair]


def _key(pair: tuple[str, str]) -> str:
    return key_of(f"{pair[1]}:{pair[0]}")
