"""Real databases for the database store: one of a random name per engine and run, migrated from zero.

A test takes ``engine`` (each engine in turn), ``sqlite_engine``, ``postgresql_engine`` or
``mariadb_engine``. In this process the database is there under ``engine.alias``, empty, and open to the
test; a worker gets it by ``celery_env.having(settings=engine.settings)``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django.plugin import DjangoDbBlocker

BACKEND = "django_jobdedup.stores.database.store.DatabaseStore"
ENGINES = ("sqlite", "sqlite_wal", "postgresql", "mariadb")

POSTGRESQL = {
    "host": os.environ.get("PGHOST", "127.0.0.1"),
    "port": os.environ.get("PGPORT", "5432"),
    "user": os.environ.get("PGUSER", "postgres"),
    "password": os.environ.get("PGPASSWORD", ""),
}
MARIADB = {
    "host": os.environ.get("MARIADB_HOST", "127.0.0.1"),
    "port": os.environ.get("MARIADB_PORT", "3306"),
    "user": os.environ.get("MARIADB_USER", "root"),
    "password": os.environ.get("MARIADB_PASSWORD", ""),
}


@dataclass(frozen=True)
class Engine:
    """A migrated database: its engine, the alias under which it is known, how Django finds it."""

    name: str
    alias: str
    database: dict[str, Any]

    @property
    def stores(self) -> dict[str, Any]:
        """Give ``JOBDEDUP_STORES`` with the database store as ``default``."""
        return {"default": {"BACKEND": BACKEND, "LOCATION": self.alias}}

    @property
    def settings(self) -> dict[str, Any]:
        """Give the settings of a worker with this database and this store; not for this process."""
        return {
            "DATABASES": {self.alias: self.database},
            "DATABASE_ROUTERS": [],
            "JOBDEDUP_STORES": self.stores,
        }

    @property
    def settings_as_default(self) -> dict[str, Any]:
        """Give the settings of a worker that has this database as its ``default``, too."""
        return {**self.settings, "DATABASES": {self.alias: self.database, "default": self.database}}

    def register(self) -> None:
        """Make the alias known to this process for good; in a test, use ``known``."""
        made = connections.configure_settings({"default": {}, self.alias: dict(self.database)})
        connections.settings[self.alias] = made[self.alias]

    @contextlib.contextmanager
    def known(self) -> Iterator[None]:
        """Make the alias known to this process for a while.

        Not for good: a Django test case forbids, at its start, every database that it knows of and did
        not ask for, and the engine of a later test would be closed to it.
        """
        if self.alias in connections.settings:  # of the module, of which this is a test
            yield
            return
        self.register()
        try:
            yield
        finally:
            connections[self.alias].close()
            del connections[self.alias]
            del connections.settings[self.alias]

    def empty(self) -> None:
        """Delete every row of the store."""
        # Not above: a process that competes loads this module before its apps are ready.
        from django_jobdedup.models import Counter, JobIntent, LockEvent, WorkerPresence

        for model in (JobIntent, LockEvent, Counter, WorkerPresence):
            rows = model.objects.using(self.alias).all()
            rows._raw_delete(self.alias)


def can_reach(connect: Callable[[], Any]) -> bool:
    """Say whether a server answers."""
    try:
        connect().close()
    except (psycopg.Error, pymysql.Error, OSError):
        return False
    return True


def postgresql(database: str = "postgres") -> psycopg.Connection[Any]:
    """Connect to the PostgreSQL server, outside Django."""
    where: Any = {**POSTGRESQL, "dbname": database, "connect_timeout": 5}
    return psycopg.connect(**where, autocommit=True)


def mariadb() -> Any:
    """Connect to the MariaDB or MySQL server, outside Django."""
    where: Any = {**MARIADB, "port": int(MARIADB["port"]), "connect_timeout": 5}
    return pymysql.connect(**where, autocommit=True)


def new_name() -> str:
    """Make up the name of a database."""
    return f"jobdedup_{secrets.token_hex(4)}"


@contextlib.contextmanager
def sqlite_database(folder: Path, *, wal: bool) -> Iterator[dict[str, Any]]:
    """Give a SQLite file, in WAL mode or not."""
    # A killed process loses nothing without a sync; only a power cut would.
    pragmas = "PRAGMA synchronous=OFF; " + ("PRAGMA journal_mode=WAL" if wal else "")
    options = {"timeout": 20, "init_command": pragmas}
    name = str(folder / f"{new_name()}.sqlite3")
    yield {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": options}


@contextlib.contextmanager
def postgresql_database() -> Iterator[dict[str, Any]]:
    """Make a database on the PostgreSQL server, and drop it at the end."""
    name = new_name()
    with postgresql() as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    where = {key.upper(): value for key, value in POSTGRESQL.items()}
    # As with SQLite: only a crash of the server could lose what is committed.
    options = {"options": "-c synchronous_commit=off"}
    yield {"ENGINE": "django.db.backends.postgresql", "NAME": name, **where, "OPTIONS": options}
    with postgresql() as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextlib.contextmanager
def mariadb_database() -> Iterator[dict[str, Any]]:
    """Make a database on the MariaDB server, in its default collation of letters, and drop it at the end."""
    name = new_name()
    with contextlib.closing(mariadb()) as connection:
        connection.cursor().execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    where = {key.upper(): value for key, value in MARIADB.items()}
    yield {"ENGINE": "django.db.backends.mysql", "NAME": name, **where, "OPTIONS": {"charset": "utf8mb4"}}
    with contextlib.closing(mariadb()) as connection:
        connection.cursor().execute(f"DROP DATABASE `{name}`")


def database_of(name: str, folder: Path) -> contextlib.AbstractContextManager[dict[str, Any]]:
    """Give the database of an engine."""
    if name == "postgresql":
        return postgresql_database()
    if name == "mariadb":
        return mariadb_database()
    return sqlite_database(folder, wal=name == "sqlite_wal")


def is_there(name: str) -> bool:
    """Say whether the server of an engine answers."""
    reach = {"postgresql": postgresql, "mariadb": mariadb}.get(name)
    return reach is None or can_reach(reach)


class Engines:
    """The databases of this run, each made at its first use."""

    def __init__(self, folder: Path, blocker: DjangoDbBlocker) -> None:
        self._folder, self._blocker = folder, blocker
        self._made: dict[str, Engine] = {}
        self._stack = contextlib.ExitStack()

    def get(self, name: str) -> Engine:
        """Give the database of an engine, migrated."""
        if name not in self._made:
            database = self._stack.enter_context(database_of(name, self._folder))
            engine = Engine(name, f"jobs_{name}", database)
            with engine.known(), self._blocker.unblock():
                call_command("migrate", database=engine.alias, verbosity=0, interactive=False)
            self._made[name] = engine
        return self._made[name]

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Engine]:
        """Give an engine for a while: empty, known, open."""
        from tests.conftest import need

        need(is_there(name), f"a {name} server")
        engine = self.get(name)
        with self._blocker.unblock(), engine.known():
            engine.empty()
            yield engine

    def close(self) -> None:
        """Drop the databases."""
        self._stack.close()


@pytest.fixture(scope="session")
def engines(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Engines]:
    """The databases of this run. Behind ``django_db_setup``, which would make test databases of them."""
    engines = Engines(tmp_path_factory.mktemp("engines"), django_db_blocker)
    yield engines
    engines.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, engines: Engines) -> Iterator[Engine]:
    """Each engine in turn."""
    with engines.open(request.param) as engine:
        yield engine


@pytest.fixture
def sqlite_engine(engines: Engines) -> Iterator[Engine]:
    """A SQLite file in WAL mode."""
    with engines.open("sqlite_wal") as engine:
        yield engine


@pytest.fixture
def postgresql_engine(engines: Engines) -> Iterator[Engine]:
    """A PostgreSQL database."""
    with engines.open("postgresql") as engine:
        yield engine


@pytest.fixture
def mariadb_engine(engines: Engines) -> Iterator[Engine]:
    """A MariaDB or MySQL database."""
    with engines.open("mariadb") as engine:
        yield engine
