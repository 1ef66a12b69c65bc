"""How long the database store takes against the Redis store, on the databases that are there.

Each engine gets a database of a random name, dropped at the end. The servers are used as they are
configured: what a commit waits for, the disk above all, is in the figures.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.dispatch import block
from benchmarks.jobs import Tasks
from benchmarks.table import Timings

BACKEND = "django_jobdedup.stores.database.store.DatabaseStore"
REDIS = {"BACKEND": "django_jobdedup.stores.redis.store.RedisStore", "LOCATION": "jobdedup"}


def settings_of(stack: ExitStack, folder: Path) -> dict[str, Any]:
    """Make the databases; return the settings of a project with one store in each and one in Redis."""
    import pymysql

    from tests.rig.engines import is_there, mariadb_database, postgresql_database, sqlite_database

    pymysql.version_info = (2, 2, 7, "final", 0)  # type: ignore[assignment]
    pymysql.install_as_MySQLdb()
    databases = {"sqlite": stack.enter_context(sqlite_database(folder, wal=True))}
    if is_there("postgresql"):
        databases["postgresql"] = stack.enter_context(postgresql_database())
        del databases["postgresql"]["OPTIONS"]  # those of the tests do not wait for the disk
    if is_there("mariadb"):
        databases["mariadb"] = stack.enter_context(mariadb_database())
    stores = {name: {"BACKEND": BACKEND, "LOCATION": name} for name in databases}
    default = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "shop.sqlite3")}
    return {
        "DATABASES": {"default": default, **databases},
        "JOBDEDUP_STORES": {"default": REDIS, **stores},
        "JOBDEDUP_REQUIRE_WORKER": False,
    }


def migrate() -> list[str]:
    """Make the tables; return the names of the stores."""
    from django.conf import settings
    from django.core.management import call_command

    names = [name for name in settings.JOBDEDUP_STORES if name != "default"]
    for name in names:
        call_command("migrate", "jobdedup", database=name, verbosity=0)
    return names


def close() -> None:
    """Close the connections, so that the databases can be dropped."""
    from django.db import connections

    from django_jobdedup.stores.handler import stores

    stores.reset()
    connections.close_all()


def time_dispatch(tasks: Tasks, names: list[str], rounds: int, calls: int) -> Timings:
    """Time accepted and suppressed dispatches; seconds per call, the first case is plain Celery."""
    numbers = itertools.count()
    cases: dict[str, Callable[[int], object]] = {"plain delay()": tasks.plain.delay}
    for name in ["default", *names]:
        policy = tasks.app.task(_body, name=f"{tasks.unique.name}.{name}", unique={"store": name})
        shown = "redis" if name == "default" else name
        policy.delay(-1)
        cases[f"accepted, {shown}"] = policy.delay
        cases[f"suppressed, {shown}"] = lambda _, task=policy: task.delay(-1)
    return _time(cases, numbers, rounds, calls, tasks.app.control.purge)


def time_verbs(names: list[str], rounds: int, calls: int) -> Timings:
    """Time start and end of a body, claim and finish; the first case is Redis."""
    from django_jobdedup.stores.handler import stores
    from django_jobdedup.stores.record import Ref
    from django_jobdedup.stores.requests import Claim, Finish, Token

    def execute(store: Any, number: int) -> None:
        ref, id = Ref(1, f"{number:064}"), secrets.token_hex(16)
        store.claim(Claim(ref, id, 0, "one"))
        store.finish(Finish(Token(ref, id, "one"), 0, reason="success"))

    cases: dict[str, Callable[[int], object]] = {
        "redis" if name == "default" else name: lambda number, store=stores[name]: execute(store, number)
        for name in ["default", *names]
    }
    return _time(cases, itertools.count(), rounds, calls, lambda: None)


def _body(tenant_id: int, period: str = "2026-08") -> None:
    """Do nothing."""


def _time(
    cases: dict[str, Callable[[int], object]],
    numbers: Iterator[int],
    rounds: int,
    calls: int,
    after: Callable[[], object],
) -> Timings:
    timings: Timings = {name: [] for name in cases}
    for number in range(-1, rounds):
        for name in list(cases)[:: 1 if number % 2 else -1]:
            taken = block(cases[name], numbers, calls)
            if number >= 0:  # the round before only warms up
                timings[name].append(taken)
            after()
    return timings
