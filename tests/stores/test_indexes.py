"""Every query of the store on its rows finds them by an index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobdedup.models import JobIntent
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire

from .bench import REF, DatabaseBench

CALL = b"x"
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN", "mysql": "EXPLAIN"}


def everything(bench: DatabaseBench) -> None:
    """Ask all that the store ever asks of its rows."""
    store = bench.store
    with transaction.atomic(bench.engine.alias):
        store.defer([Acquire(REF, "late", call=CALL)])
    bench.acquire("a", call=CALL)
    bench.acquire("b")
    store.acquire_many([Acquire(Ref(1, f"{n:064}"), f"id{n}", call=CALL) for n in range(3)])
    bench.confirm("a")
    bench.run("a")
    bench.renew("a")
    bench.finish("a")
    bench.withdraw("b")
    bench.advance(20)
    store.due()
    store.missed(REF, "late", "down", 1)
    store.resolve(REF, "late", "dead")
    bench.acquire("c", pending=1)
    bench.advance(20)
    bench.reap()
    bench.record("a")
    store.list_locks(1)
    store.fate(REF, "a")
    store.seek("a")
    now = round(bench.now * 1000)
    rows = JobIntent.objects.using(bench.engine.alias)
    for found in (rows.of(REF.fingerprint), rows.overdue(now), rows.ended_before(now)):
        list(found)


def plan(connection: Any, statement: str) -> list[str]:
    """Ask the engine how it would find the rows."""
    with connection.cursor() as cursor:
        cursor.execute(f"{EXPLAIN[connection.vendor]} {statement}")
        names = [column[0] for column in cursor.description]
        return [" ".join(f"{n}={v}" for n, v in zip(names, row, strict=True)) for row in cursor.fetchall()]


def scans(vendor: str) -> Callable[[str], bool]:
    """Return what recognises a reading of the whole table in a line of a plan."""
    whole = {
        "sqlite": r"SCAN (jobdedup_jobintent|held|c|e)\b(?!.*USING)",
        "postgresql": r"Seq Scan on jobdedup_jobintent",
        "mysql": r"table=(jobdedup_jobintent|held|c|e) .*possible_keys=None",
    }
    return lambda line: bool(re.search(whole[vendor], line))


@pytest.fixture
def explained(database: DatabaseBench) -> Iterator[dict[str, list[str]]]:
    """The plans of everything, by statement."""
    connection = connections[database.engine.alias]
    connection.ensure_connection()
    with CaptureQueriesContext(connection) as found:
        everything(database)
    texts = {query["sql"] for query in found if "jobdedup_jobintent" in query["sql"]}
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET enable_seqscan = off")  # a small table is quicker to read as a whole
    yield {
        text: plan(connection, text) for text in texts if text.lstrip("(").startswith(("SELECT", "UPDATE"))
    }
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET enable_seqscan = on")


def test_no_statement_reads_the_whole_table(database: DatabaseBench, explained: dict[str, list[str]]) -> None:
    assert len(explained) > 15
    scan = scans(connections[database.engine.alias].vendor)
    assert {text: lines for text, lines in explained.items() if any(map(scan, lines))} == {}


def test_a_query_without_an_index_is_found(database: DatabaseBench) -> None:
    connection = connections[database.engine.alias]
    connection.ensure_connection()
    lines = plan(connection, "SELECT 1 FROM jobdedup_jobintent WHERE merged = 7")
    assert any(map(scans(connection.vendor), lines)), lines
