"""MySQL and MariaDB at a level that locks gaps: a step of the store waits for no stranger's transaction.

Case U48: decisions rest on unique columns and row counts, whatever the isolation of the project.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobdedup.stores.database import isolation
from django_jobdedup.stores.database.store import DatabaseStore
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Merge, Token
from django_jobdedup.stores.results import Acquired, Claimed, Confirmed, Merged, Released, Renewed
from tests.rig.engines import Engine

LEVELS = ("repeatable read", "serializable")


@dataclass(frozen=True, slots=True)
class Refs:
    """Records in the order of the index: one of ours between two of the stranger's, another behind them.

    New ones for each test: a row that was just deleted, and is written again, locks a gap anyway.
    """

    theirs: tuple[Ref, Ref]
    between: Ref
    last: Ref


@pytest.fixture
def refs() -> Refs:
    """Records of which the database has never heard."""
    first, between, second, last = (Ref(7, letter + secrets.token_hex(31) + "0") for letter in "abcd")
    return Refs((first, second), between, last)


@contextmanager
def at(engine: Engine, alias: str, level: str) -> Iterator[DatabaseStore]:
    """A store with a connection of its own at a level, which waits for no lock longer than a second."""
    impatient = "SET SESSION innodb_lock_wait_timeout = 1"
    options = {**engine.database["OPTIONS"], "isolation_level": level, "init_command": impatient}
    with replace(engine, alias=alias, database={**engine.database, "OPTIONS": options}).known():
        store = DatabaseStore("default", alias)
        yield store
        store.verbs.tally.reset()


@pytest.fixture(params=LEVELS)
def stores(request: pytest.FixtureRequest, mariadb_engine: Engine) -> Iterator[list[DatabaseStore]]:
    """Two stores on one database, each with a connection of its own, at one level."""
    level = request.param
    with at(mariadb_engine, "mine", level) as mine, at(mariadb_engine, "theirs", level) as theirs:
        yield [mine, theirs]


def of(ref: Ref, word: str = "") -> str:
    """Give an id for a record."""
    return f"{ref.fingerprint[:20]}{word}"


def life(store: DatabaseStore, ref: Ref) -> list[Any]:
    """Take every step of a job; what each was answered."""
    id = of(ref)
    token = Token(ref, id, "one", 30)
    merge: dict[str, Any] = {"counts": "PW", "on_waiting": "merge", "args": b"x", "merge": Merge(0.0, None)}
    return [
        store.acquire(Acquire(ref, id, call=b"x", **merge)),
        store.acquire(Acquire(ref, of(ref, "later"), call=b"x", **merge)),
        *store.confirm([(ref, id)]),
        store.claim(Claim(ref, id, 0, "one", lease=30)),
        *store.renew([token]),
        store.finish(Finish(token, 0)),
    ]


STEPS = [Acquired, Merged, Confirmed, Claimed, Renewed, Released]


def test_no_step_waits_for_a_call_in_a_strangers_open_transaction(
    stores: list[DatabaseStore], refs: Refs
) -> None:
    mine, theirs = stores
    with transaction.atomic(using=theirs.using):
        theirs.defer([Acquire(ref, of(ref), call=b"x") for ref in refs.theirs])
        answers = [life(mine, ref) for ref in (refs.between, refs.last)]
    assert [[type(answer) for answer in each] for each in answers] == [STEPS, STEPS]


@pytest.mark.parametrize("stores", LEVELS[:1], indirect=True)
def test_nor_for_one_that_publishes_its_own_id_there(stores: list[DatabaseStore], refs: Refs) -> None:
    """A retry in a transaction. Under SERIALIZABLE the engine locks whatever the stranger reads."""
    mine, theirs = stores
    for ref in refs.theirs:
        theirs.acquire(Acquire(ref, of(ref), call=b"x"))
    with transaction.atomic(using=theirs.using):
        for ref in refs.theirs:
            theirs.acquire(Acquire(ref, of(ref), call=b"x", again=True))
        answers = [life(mine, ref) for ref in (refs.between, refs.last)]
    assert [[type(answer) for answer in each] for each in answers] == [STEPS, STEPS]


def test_the_session_and_the_users_transaction_keep_their_level(
    stores: list[DatabaseStore], refs: Refs
) -> None:
    mine, _ = stores
    connection = connections[mine.using]
    life(mine, refs.between)
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')")
        levels = {str(row[1]).replace("-", " ").lower() for row in cursor.fetchall()}
    assert levels == {connection.isolation_level}
    with CaptureQueriesContext(connection) as asked, transaction.atomic(using=mine.using):
        mine.acquire(Acquire(refs.last, of(refs.last), call=b"x"))
    assert isolation.NEXT not in [each["sql"] for each in asked]


def test_a_server_that_logs_statements_keeps_its_level(
    stores: list[DatabaseStore], refs: Refs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """InnoDB would refuse to write at the other one there."""
    mine, _ = stores
    connection = connections[mine.using]
    connection.ensure_connection()
    monkeypatch.setitem(isolation._may, connection, False)
    with CaptureQueriesContext(connection) as asked:
        assert [type(answer) for answer in life(mine, refs.between)] == STEPS
    assert isolation.NEXT not in [each["sql"] for each in asked]


def test_at_the_usual_level_nothing_more_is_asked(mariadb_engine: Engine, refs: Refs) -> None:
    with at(mariadb_engine, "mine", isolation.ENOUGH) as mine:
        connections["mine"].ensure_connection()
        with CaptureQueriesContext(connections["mine"]) as asked:
            assert [type(answer) for answer in life(mine, refs.between)] == STEPS
    assert isolation.NEXT not in [each["sql"] for each in asked]
