"""How many statements each verb of the database store takes: the table on the page of speed says no less."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Token

from .bench import REF, DatabaseBench

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "speed.md"
CALL = b"call"


def refs(number: int) -> list[Ref]:
    """Make up records."""
    return [Ref(1, f"{place:064}") for place in range(number)]


def defer(bench: DatabaseBench, number: int) -> None:
    """Write intents, each in a transaction of its own."""
    for place, ref in enumerate(refs(number)):
        with transaction.atomic(bench.engine.alias):
            bench.store.defer([Acquire(ref, f"id{place}", call=CALL)])


def many(bench: DatabaseBench) -> list[Acquire]:
    """Write a hundred intents of one key in one transaction."""
    requests = [Acquire(REF, f"id{place}", call=CALL) for place in range(100)]
    with transaction.atomic(bench.engine.alias):
        bench.store.defer(requests)
    return requests


def taking(bench: DatabaseBench) -> Callable[[], Any]:
    requests = many(bench)
    return lambda: bench.store.take([(request.ref, request.id) for request in requests])


def equal(bench: DatabaseBench) -> Callable[[], Any]:
    requests = many(bench)
    return lambda: bench.store.acquire_many(requests)


def refusing(bench: DatabaseBench) -> Callable[[], Any]:
    requests = many(bench)
    return lambda: bench.store.supersede([(request.ref, request.id, "x") for request in requests])


def deferred(bench: DatabaseBench) -> Callable[[], Any]:
    request = Acquire(REF, "a", call=CALL)
    with transaction.atomic(bench.engine.alias):
        bench.store.defer([request])
    return lambda: bench.store.acquire(request)


def running(bench: DatabaseBench, number: int = 100) -> Callable[[], Any]:
    for place, ref in enumerate(refs(number)):
        bench.run(f"id{place}", ref=ref)
    return lambda: bench.store.renew(
        [Token(ref, f"id{place}", "one") for place, ref in enumerate(refs(number))]
    )


def waiting(bench: DatabaseBench, number: int = 100) -> Callable[[], Any]:
    bench.store.acquire_many(
        [Acquire(ref, f"id{place}", call=CALL) for place, ref in enumerate(refs(number))]
    )
    return lambda: bench.store.confirm([(ref, f"id{place}") for place, ref in enumerate(refs(number))])


def due(bench: DatabaseBench, number: int = 100) -> Callable[[], Any]:
    defer(bench, number)
    bench.advance(20)
    return lambda: bench.store.due(number)


def after(bench: DatabaseBench, *steps: Callable[[], Any]) -> Callable[[], Any]:
    """Take all steps but the last."""
    for step in steps[:-1]:
        step()
    return steps[-1]


PREPARED: dict[str, Callable[[DatabaseBench], Callable[[], Any]]] = {
    "an accepted call": lambda b: lambda: b.acquire("a", call=CALL),
    "a refused call": lambda b: after(b, lambda: b.wait("a"), lambda: b.acquire("b", call=CALL)),
    "100 accepted calls at once": lambda b: (
        lambda: b.store.acquire_many(
            [Acquire(ref, f"id{place}", call=CALL) for place, ref in enumerate(refs(100))]
        )
    ),
    "a call in a transaction": lambda b: lambda: b.store.defer([Acquire(REF, "a", call=CALL)]),
    "up to 100 such calls after the commit, so that no relay takes them": taking,
    "the decision of one of them": deferred,
    "the decision of 100 of one key": equal,
    "the end of those that were refused": refusing,
    "the confirm of up to 200": waiting,
    "the start of a body": lambda b: after(b, lambda: b.wait("a", call=CALL), lambda: b.run("a")),
    "the end of a body": lambda b: after(
        b, lambda: b.wait("a", call=CALL), lambda: b.run("a"), lambda: b.finish("a")
    ),
    "the end that hands over to a retry": lambda b: after(
        b, lambda: b.wait("a", call=CALL), lambda: b.run("a"), lambda: b.finish("a", how=How.HANDOVER)
    ),
    "the renewal of up to 200 leases": running,
    "a batch of the relay": due,
}


def stated() -> dict[str, tuple[int, str]]:
    """Read the table: statements, and whether they are a transaction."""
    section = PAGE.read_text().split("## Statements of the database store")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \| (\d+) \| ([^|]*?) \|$", section, re.MULTILINE)
    return {what: (int(number), kind) for what, number, kind in rows}


def test_every_row_is_counted() -> None:
    assert set(stated()) == set(PREPARED)


@pytest.mark.parametrize("what", PREPARED)
def test_the_page_says_how_many(database: DatabaseBench, what: str) -> None:
    verb = PREPARED[what](database)
    connection = connections[database.engine.alias]
    connection.ensure_connection()
    with CaptureQueriesContext(connection) as found:
        verb()
    texts = [query["sql"] for query in found]
    begun = [text for text in texts if text.startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE"))]
    expected = stated()[what]
    if what.startswith("the renewal") and database.engine.name == "mariadb":
        expected = (2, "one transaction")
    assert (len(texts) - len(begun), "one transaction" if begun else "each by itself") == expected, texts
