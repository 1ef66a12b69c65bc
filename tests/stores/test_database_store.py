"""What is the database store's own: its settings, hard keys, busy and missing databases, transactions."""

from __future__ import annotations

import secrets
import threading
from collections import Counter as Numbers
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DataError, OperationalError, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobdedup import TransactionConflict
from django_jobdedup.models import Counter, JobIntent
from django_jobdedup.stores.breaker import Breaker
from django_jobdedup.stores.database.line import Line, Sql
from django_jobdedup.stores.database.store import DatabaseStore
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim
from django_jobdedup.stores.results import Acquired, Claimed, Confirmed, Held, Outside, Unavailable
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.engines import BACKEND, Engine
from tests.rig.environment import Environment

from .bench import OTHER, REF, DatabaseBench
from .interrupting import InterruptedBench

SECOND = "jobs_second"


@pytest.fixture
def second(database: DatabaseBench) -> Iterator[Any]:
    """Another connection to the same database."""
    other = Engine(database.engine.name, SECOND, database.engine.database)
    with other.known():
        yield connections[SECOND]


# --- settings -------------------------------------------------------------------------------------------


def test_the_setting_names_a_database(settings: Any, sqlite_engine: Engine) -> None:
    settings.JOBDEDUP_STORES = {
        "default": {"BACKEND": BACKEND, "LOCATION": sqlite_engine.alias, "OPTIONS": {"pause": 2}}
    }
    store = stores["default"]
    assert isinstance(store, DatabaseStore)
    assert (store.using, store.durable, store.alias) == (sqlite_engine.alias, True, "default")


class ToSecond:
    """A router that sends intents elsewhere."""

    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "elsewhere" if model is JobIntent else None


def test_without_a_location_the_routers_decide(settings: Any) -> None:
    assert DatabaseStore("default").using == "default"
    settings.DATABASE_ROUTERS = [f"{__name__}.ToSecond"]
    assert DatabaseStore("default").using == "elsewhere"


@pytest.mark.parametrize(
    ("location", "options", "said"),
    [
        ("nowhere", {}, "LOCATION 'nowhere' is no alias in DATABASES; write one of 'default'"),
        ("", {"timeout": 3}, 'there is no option \'timeout\'; known: "pause", "max_pause"'),
        ("dummy", {}, "does not work on unknown"),
    ],
)
def test_what_cannot_work_is_refused(location: str, options: Any, said: str) -> None:
    made = connections.configure_settings({"default": {}, "dummy": {}})
    connections.settings["dummy"] = made["dummy"]
    try:
        with pytest.raises(ImproperlyConfigured, match=said):
            DatabaseStore("locks", location, options)
    finally:
        del connections.settings["dummy"]


# --- keys that are hard for a database (case U38) -------------------------------------------------------

LONG = "x" * 200
PAIRS = {
    "behind 200 characters": (LONG + "a", LONG + "b"),
    "case": ("key", "KEY"),
    "accent": ("resume", "résumé"),
    "trailing blanks": ("key", "key  "),
    "ligature": ("strasse", "straße"),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_keys_that_an_engine_may_take_for_equal_are_two(
    engine: Engine, celery_env: Environment, settings: Any, pair: tuple[str, str]
) -> None:
    settings.JOBDEDUP_STORES = engine.stores
    results = [tasks.until_executed.delay(key) for key in (*pair, *pair)]
    assert [str(result.outcome) for result in results] == ["accepted"] * 2 + ["suppressed"] * 2
    assert JobIntent.objects.using(engine.alias).count() == 2


def test_a_megabyte_of_arguments_is_a_key_and_a_stored_call(
    engine: Engine, celery_env: Environment, settings: Any
) -> None:
    settings.JOBDEDUP_STORES = engine.stores
    big = secrets.token_hex(500_000)
    assert not tasks.until_executed.delay(big).duplicate
    assert tasks.until_executed.delay(big).duplicate
    assert not tasks.until_executed.delay(big + "!").duplicate
    row = JobIntent.objects.using(engine.alias).order_by("id").first()
    assert row is not None
    assert big.encode() in bytes(row.call or b"")


@app.task(name="shop." + "very_long_name_" * 20, unique=True)
def long_named(number: int) -> None:
    """Do nothing under a name of more than 300 characters."""


def test_a_task_with_a_name_of_300_characters_is_locked(
    engine: Engine, celery_env: Environment, settings: Any
) -> None:
    settings.JOBDEDUP_STORES = engine.stores
    assert len(long_named.name) > 300
    assert [long_named.delay(1).duplicate, long_named.delay(1).duplicate] == [False, True]
    counted = stores["default"].counters()
    assert counted == {long_named.name: {"acquired": 1, "held": 1}}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_tokens_that_an_engine_may_take_for_equal_are_two(
    database: DatabaseBench, pair: tuple[str, str]
) -> None:
    for token in pair:
        assert isinstance(database.acquire(token, counts=""), Acquired)
    assert sorted(database.states()) == sorted(pair)


# --- inside the user's transaction ----------------------------------------------------------------------


def test_every_verb_works_inside_a_transaction(database: DatabaseBench) -> None:
    with transaction.atomic(database.engine.alias):
        assert isinstance(database.acquire("a", call=b"x"), Acquired)
        assert isinstance(database.acquire("b"), Held)
        assert database.confirm("a") == Confirmed()
        database.run("a")
        database.finish("a")
        assert database.acquire("a") == Outside()
    assert database.holders() == ()


def test_a_refusal_leaves_the_transaction_usable(database: DatabaseBench) -> None:
    """On PostgreSQL a statement that fails ends a transaction: ours fails in a savepoint."""
    bench = InterruptedBench(database.engine)
    with transaction.atomic(bench.engine.alias):
        bench.interrupt(lambda: bench.wait("z"))
        assert isinstance(bench.acquire("a"), Held)
        assert JobIntent.objects.using(bench.engine.alias).count() == 1
    bench.store.close()


def hold(connection: Any) -> None:
    """Keep the row of the holder locked, in an open transaction."""
    connection.ensure_connection()
    connection.set_autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobdedup_jobintent SET refused = refused + 0")


def let_go(connection: Any) -> None:
    """End that transaction."""
    connection.rollback()
    connection.set_autocommit(True)


IMPATIENT = {
    "sqlite": "PRAGMA busy_timeout = 100",
    "postgresql": "SET lock_timeout = '200ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
}


def be_impatient(bench: DatabaseBench) -> None:
    """Wait for a lock only for a moment."""
    connection = connections[bench.engine.alias]
    with connection.cursor() as cursor:
        cursor.execute(IMPATIENT[connection.vendor])


def test_a_conflict_inside_a_transaction_is_raised_with_advice(database: DatabaseBench, second: Any) -> None:
    database.wait("a")
    be_impatient(database)
    hold(second)
    try:
        with (
            pytest.raises(TransactionConflict, match="run the whole transaction again"),
            transaction.atomic(database.engine.alias),
        ):
            database.claim("a")
    finally:
        let_go(second)
    assert isinstance(database.claim("a"), Claimed)


def test_a_call_in_a_transaction_that_meets_another_is_raised_with_advice(
    database: DatabaseBench, second: Any
) -> None:
    """Its row is written there, so nobody else can try again."""
    database.wait("a")
    be_impatient(database)
    hold(second)
    call = Acquire(REF, "a", call=b"x")
    try:
        with (
            pytest.raises(TransactionConflict, match="run the whole transaction again"),
            transaction.atomic(database.engine.alias),
        ):
            database.store.defer([call])
    finally:
        let_go(second)
    with transaction.atomic(database.engine.alias):
        database.store.defer([call])


def test_outside_of_one_it_is_tried_again(database: DatabaseBench, second: Any) -> None:
    database.wait("a")
    be_impatient(database)
    hold(second)
    told: list[Any] = []

    def claim() -> None:
        be_impatient(database)
        told.append(database.claim("a"))
        connections[database.engine.alias].close()

    caller = threading.Thread(target=claim)
    caller.start()
    caller.join(0.4)  # it fails once or twice meanwhile; however long it waits, it must win
    let_go(second)
    caller.join()
    assert isinstance(told[0], Claimed)


def test_who_is_never_let_in_is_told_so(database: DatabaseBench, second: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("django_jobdedup.stores.database.line.BUSY_TRIES", 2)
    database.wait("a")
    be_impatient(database)
    hold(second)
    try:
        answer = database.claim("a")
    finally:
        let_go(second)
    assert isinstance(answer, Unavailable)
    assert "others were faster" in answer.error
    assert isinstance(database.claim("a"), Claimed), "the breaker is closed: the database is well"


# --- a database that is not there -----------------------------------------------------------------------


def test_a_database_that_is_down_is_unavailable_and_left_alone(settings: Any, django_db_blocker: Any) -> None:
    gone = {"ENGINE": "django.db.backends.postgresql", "NAME": "x", "HOST": "127.0.0.1", "PORT": "1"}
    with Engine("postgresql", "gone", gone).known(), django_db_blocker.unblock():
        store = DatabaseStore("default", "gone")
        first = store.acquire(Acquire(REF, "a"))
        assert isinstance(first, Unavailable)
        assert "OperationalError" in first.error
        assert store.line.breaker.refuses()
        assert not store.in_transaction()
        assert isinstance(store.due(), Unavailable)
        assert store.renew([]) == []


def test_missing_tables_are_named_with_what_to_do(sqlite_engine: Engine, tmp_path: Any) -> None:
    with Engine("sqlite", "bare", {**sqlite_engine.database, "NAME": str(tmp_path / "bare")}).known():
        store = DatabaseStore("default", "bare")
        answer = store.acquire(Acquire(REF, "a"))
        assert isinstance(answer, Unavailable)
        assert "manage.py migrate jobdedup --database bare" in answer.error
        assert not store.line.breaker.refuses()
        assert not store.has_tables()


@pytest.fixture
def cut(database: DatabaseBench, second: Any) -> Callable[[], None]:
    """Give what ends this thread's connection, as a restart of the server does."""
    connection = connections[database.engine.alias]
    if connection.vendor == "sqlite":
        pytest.skip("a file has no server that could restart")
    postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()" if postgresql else "SELECT CONNECTION_ID()")
        (number,) = cursor.fetchone()

    def end() -> None:
        with second.cursor() as cursor:
            cursor.execute(f"SELECT pg_terminate_backend({number})" if postgresql else f"KILL {number}")

    return end


def test_a_connection_that_broke_while_nobody_used_it_is_opened_again(
    database: DatabaseBench, cut: Callable[[], None]
) -> None:
    database.wait("a")
    cut()
    assert isinstance(database.claim("a"), Claimed)
    assert not database.store.line.breaker.refuses()


def test_a_step_whose_connection_breaks_in_the_middle_is_taken_again(
    database: DatabaseBench, cut: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction has closed the connection; the next one is as good."""
    write, cuts = Sql.write, [cut]

    def cut_after(sql: Sql, text: str, words: list[Any]) -> int:
        number = write(sql, text, words)
        if cuts:
            cuts.pop()()
        return number

    monkeypatch.setattr(Sql, "write", cut_after)
    answers = database.store.acquire_many([Acquire(REF, "a"), Acquire(OTHER, "b")])
    assert [type(answer) for answer in answers] == [Acquired, Acquired]
    assert not cuts
    assert not database.store.line.breaker.refuses()


def test_a_pool_whose_connections_were_all_cut_is_cleared(postgresql_engine: Engine) -> None:
    """A restart of the server leaves as many dead ones as the pool holds: one call meets them, not each."""
    pytest.importorskip("psycopg_pool")
    options = {"pool": {"min_size": 4, "max_size": 4, "timeout": 10}, "application_name": SECOND}
    database = {**postgresql_engine.database, "OPTIONS": options}
    with Engine("postgresql", SECOND, database).known():
        store, connection = DatabaseStore("default", SECOND), connections[SECOND]
        try:
            assert isinstance(store.acquire(Acquire(REF, "a")), Acquired)
            connection.close()
            connection.pool.wait()
            with connections[postgresql_engine.alias].cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = %s AND datname = current_database()",
                    [SECOND],
                )
                assert cursor.rowcount == 4
            assert isinstance(store.acquire(Acquire(OTHER, "b")), Acquired)
            assert not store.line.breaker.refuses()
        finally:
            connection.close()
            connection.close_pool()


def test_a_value_that_no_column_takes_is_the_callers_mistake(postgresql_bench: DatabaseBench) -> None:
    with pytest.raises((DataError, ValueError)):
        postgresql_bench.acquire("a\x00b")


# --- counters -------------------------------------------------------------------------------------------


def test_numbers_wait_in_the_process_and_add_up(database: DatabaseBench) -> None:
    other = DatabaseStore("default", database.engine.alias)
    database.acquire("a")
    other.acquire(Acquire(REF, "b", name="shop.recompute"))
    other.acquire(Acquire(REF, "c", name="shop.recompute"))
    assert database.counted() == {"acquired": 1}, "the other process has not told its own yet"
    other.verbs.tally.flush()
    assert database.counted() == {"acquired": 1, "held": 2}


def test_numbers_are_not_written_in_a_transaction(database: DatabaseBench, monkeypatch: Any) -> None:
    """They would lock the rows of the counters until its end."""
    monkeypatch.setattr("django_jobdedup.stores.database.tally.WAIT", 0.0)
    with transaction.atomic(database.engine.alias):
        database.acquire("a")
        assert not Counter.objects.using(database.engine.alias).exists()
    database.acquire("b")
    assert Counter.objects.using(database.engine.alias).exists()


def test_a_line_without_a_database_says_nothing_of_a_transaction(sqlite_engine: Engine) -> None:
    line = Line("default", sqlite_engine.alias, Breaker())
    line.connection.close()
    assert line.run("claim", lambda sql: sql.alone) is True
    assert line.connection.connection is None, "asked without connecting"


def test_two_stores_on_one_database_share_their_locks(database: DatabaseBench) -> None:
    other = DatabaseStore("other", database.engine.alias)
    assert isinstance(other.claim(Claim(Ref(7, "a" * 64), "a", 0, "one")), Claimed)
    assert database.store.inspect(Ref(7, "a" * 64)) is not None


def test_many_numbers_are_added_in_few_statements(database: DatabaseBench) -> None:
    tally = database.store.verbs.tally
    for _ in range(2):
        tally.add(Numbers({(f"task {n}", "acquired"): n + 1 for n in range(150)}))
        connection = connections[database.engine.alias]
        connection.ensure_connection()
        with CaptureQueriesContext(connection) as found:
            assert tally.flush()
        assert len(found) == 2
    assert database.counted("task 149") == {"acquired": 300}


def test_without_tables_a_call_in_a_transaction_says_what_to_run(
    sqlite_engine: Engine, settings: Any, tmp_path: Path
) -> None:
    """The caller's transaction is his, so the error is raised; it is the database's own, with advice."""
    with (
        Engine("sqlite", "bare", {**sqlite_engine.database, "NAME": str(tmp_path / "bare")}).known(),
        pytest.raises(OperationalError, match=r"no such table.*; run: manage\.py migrate jobdedup"),
        transaction.atomic(using="bare"),
    ):
        DatabaseStore("default", "bare").defer([Acquire(REF, "a", call=b"a call")])
