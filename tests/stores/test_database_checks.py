"""The checks of a database store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.db import connections

from django_jobdedup.checks.stores import check_stores, check_tables
from tests.rig.engines import BACKEND, Engine


@pytest.fixture
def unsupported() -> Iterator[str]:
    """The alias of a database of an engine that the store does not know."""
    connections.settings["dummy"] = connections.configure_settings({"default": {}, "dummy": {}})["dummy"]
    yield "dummy"
    del connections["dummy"], connections.settings["dummy"]


class ToDummy:
    """A router to that database."""

    def db_for_write(self, model: type, **hints: Any) -> str:
        return "dummy"


def test_a_store_on_a_supported_engine_is_fine(settings: Any, engine: Engine) -> None:
    settings.JOBDEDUP_STORES = engine.stores
    assert check_stores() == []
    assert check_tables(databases=[engine.alias]) == []


def test_an_engine_that_is_not_supported_is_reported(settings: Any, unsupported: str) -> None:
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": BACKEND, "LOCATION": unsupported}}
    (found,) = check_stores()
    assert found.id == "jobdedup.E108"
    assert "does not work on unknown (alias 'dummy'). Use PostgreSQL" in found.msg


def test_an_engine_to_which_the_routers_lead_is_looked_at_too(settings: Any, unsupported: str) -> None:
    settings.DATABASE_ROUTERS = [f"{__name__}.ToDummy"]
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": BACKEND}}
    assert [found.id for found in check_stores()] == ["jobdedup.E108"]


def test_missing_tables_are_reported_where_the_database_may_be_asked(
    settings: Any, sqlite_engine: Engine, tmp_path: Path
) -> None:
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": BACKEND, "LOCATION": "bare"}}
    with Engine("sqlite", "bare", {**sqlite_engine.database, "NAME": str(tmp_path / "bare")}).known():
        assert check_tables() == []
        assert check_tables(databases=[sqlite_engine.alias]) == []
        (found,) = checks.run_checks(tags=["jobdedup"], databases=["bare"])
        assert (found.id, found.hint) == (
            "jobdedup.W108",
            "Run: manage.py migrate jobdedup --database bare",
        )


class ToBare:
    """A router to a database without tables."""

    def db_for_write(self, model: type, **hints: Any) -> str:
        return "bare"


def test_missing_tables_of_dead_jobs_are_reported_with_locks_in_redis_too(
    settings: Any, sqlite_engine: Engine, tmp_path: Path
) -> None:
    settings.JOBDEDUP_STORES = {}
    settings.DATABASE_ROUTERS = [f"{__name__}.ToBare"]
    with Engine("sqlite", "bare", {**sqlite_engine.database, "NAME": str(tmp_path / "bare")}).known():
        assert check_tables(databases=[sqlite_engine.alias]) == []
        (found,) = check_tables(databases=["bare"])
        assert found.id == "jobdedup.W108"
        assert "The tables of dead jobs are missing in 'bare'" in found.msg


def test_migrate_itself_is_not_told_to_migrate(
    settings: Any, sqlite_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": BACKEND, "LOCATION": "bare"}}
    monkeypatch.setattr("sys.argv", ["manage.py", "migrate"])
    with Engine("sqlite", "bare", {**sqlite_engine.database, "NAME": str(tmp_path / "bare")}).known():
        assert check_tables(databases=["bare"]) == []


class ByHand:
    """A router to an alias without autocommit."""

    def db_for_write(self, model: type, **hints: Any) -> str:
        return "by_hand"


@pytest.mark.parametrize("way", ["named", "routed"])
def test_an_alias_without_autocommit_is_reported(settings: Any, sqlite_engine: Engine, way: str) -> None:
    """Nothing that a worker or a relay writes there would ever be committed."""
    if way == "named":
        settings.JOBDEDUP_STORES = {"default": {"BACKEND": BACKEND, "LOCATION": "by_hand"}}
    else:
        settings.DATABASE_ROUTERS = [f"{__name__}.ByHand"]
        settings.JOBDEDUP_STORES = {"default": {"BACKEND": BACKEND}}
    with Engine("sqlite", "by_hand", {**sqlite_engine.database, "AUTOCOMMIT": False}).known():
        (found,) = check_stores()
    assert found.id == "jobdedup.E108"
    assert "DATABASES['by_hand'] has AUTOCOMMIT = False" in found.msg
