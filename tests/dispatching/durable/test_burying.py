"""The row of a dead job is written beside other writers, and once."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

from django.db import connections

from django_jobdedup.dead import dead_jobs
from django_jobdedup.header import Header, Knobs
from django_jobdedup.middleware import burying
from tests.rig.engines import Engine

HEADER = Header("rejected", 3, (("f" * 64, Knobs(name="shop.recompute")),))


def bury(engine: Engine) -> None:
    burying._write(HEADER, b"the call", "rejected", "", using=engine.alias)


def test_another_writer_between_the_begin_and_the_row_is_waited_for(sqlite_engine: Engine) -> None:
    """In a transaction that has read before it writes SQLite would fail at once: "database is locked"."""
    rival = sqlite3.connect(sqlite_engine.database["NAME"], isolation_level=None)

    def meanwhile(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("INSERT"):
            rival.execute("PRAGMA user_version = 7")
        return execute(sql, *rest)

    with contextlib.closing(rival), connections[sqlite_engine.alias].execute_wrapper(meanwhile):
        bury(sqlite_engine)
    assert [row.token for row in dead_jobs(sqlite_engine.alias)] == ["rejected"]


def test_a_job_that_is_buried_twice_is_one_row(engine: Engine) -> None:
    bury(engine)
    bury(engine)
    assert dead_jobs(engine.alias).count() == 1
