"""History: what was abnormal on Redis becomes rows, each event once, whoever copies it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_jobdedup import signals
from django_jobdedup.models import LockEvent
from django_jobdedup.recovery import history
from django_jobdedup.recovery.duty import never
from django_jobdedup.recovery.history import Drain, drain, history_alias
from django_jobdedup.recovery.retention import prune
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Finish, Token
from tests.rig.engines import Engine
from tests.rig.environment import Environment

REDIS = {"BACKEND": "django_jobdedup.stores.redis.store.RedisStore", "LOCATION": "jobdedup"}


class Toward:
    """A router that keeps events in one database."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        """Say where."""
        return self.alias if model is LockEvent else None


@pytest.fixture
def using(celery_env: Environment, engine: Engine, settings: Any) -> Iterator[str]:
    """The alias of the database of the history; the locks lie in Redis, and beside them a store in there."""
    engine.empty()
    settings.JOBDEDUP_STORES = {"default": REDIS, "other": engine.stores["default"]}
    settings.JOBDEDUP_HISTORY = "abnormal"
    settings.DATABASE_ROUTERS = [Toward(engine.alias)]
    drain.reset()
    yield engine.alias
    drain.reset()
    engine.empty()


def meet(number: int, shard: int = 3, store: str = "default", word: str = "job") -> None:
    """Have a store meet events: each is a finish that held nothing."""
    for place in range(number):
        token = Token(Ref(shard, f"{place:064x}"), f"{word}{place}", "nonce")
        stores[store].finish(Finish(token, 0, name="shop.recompute"))


def told(using: str) -> list[str]:
    return sorted(LockEvent.objects.using(using).of_store("default").values_list("token", flat=True))


def test_an_event_of_redis_becomes_a_row(using: str) -> None:
    meet(2)
    before = round(time.time() * 1000)
    assert drain.run(never) == {"events": 2}
    row = LockEvent.objects.using(using).get(token="job1")
    assert (row.what, row.shard, row.fingerprint) == ("lock_lost", 3, f"{1:064x}")
    assert (row.name, row.other, row.store) == ("shop.recompute", "nonce", "default")
    assert abs(row.at - before) < 60_000
    [first, _] = stores["default"].events(3)  # type: ignore[misc]
    assert LockEvent.objects.using(using).get(token="job0").key == first.key


def test_each_becomes_one_row_and_what_is_new_comes_behind(using: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(history, "BATCH", 10)
    meet(25)
    assert drain.run(never) == {"events": 25}
    assert drain.run(never) == {}
    meet(3, shard=5, word="later")
    assert drain.run(never) == {"events": 3}
    assert len(told(using)) == 28


def test_a_new_process_goes_on_where_others_have_come(using: str, monkeypatch: Any) -> None:
    meet(5)
    drain.run(never)
    meet(2, word="later")
    read: list[str] = []
    events = stores["default"].events

    def noted(shard: int, after: str = "", limit: int = 100) -> Any:
        if shard == 3:
            read.append(after)
        return events(shard, after, limit)

    monkeypatch.setattr(stores["default"], "events", noted)
    assert Drain().run(never) == {"events": 2}
    assert read == [LockEvent.objects.using(using).get(token="job4").key]


def test_what_is_copied_twice_at_once_is_there_once(using: str, monkeypatch: Any) -> None:
    """No process knows of the rows of the other: the unique place decides."""
    monkeypatch.setattr(history, "BATCH", 10)
    meet(40)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(_drained, range(4)))
    assert told(using) == sorted(f"job{place}" for place in range(40))


def _drained(_: int) -> None:
    try:
        Drain().run(never)
    finally:
        connections.close_all()


def test_a_database_store_does_not_read_what_was_copied(using: str) -> None:
    meet(2)
    drain.run(never)
    meet(1, store="other", word="own")
    found = stores["other"].events(3)
    assert isinstance(found, list)
    assert [event.id for event in found] == ["own0"]
    assert drain.run(never) == {}, "it writes its own rows"


def test_what_retention_has_deleted_does_not_come_back(using: str, settings: Any) -> None:
    meet(3)
    drain.run(never)
    settings.JOBDEDUP_RETENTION = 0.05
    time.sleep(0.1)
    assert prune(never)["events"] == 3
    assert Drain().run(never) == {"events": 0}
    assert told(using) == []


def test_retention_looks_after_the_history_where_no_store_is_a_database(using: str, settings: Any) -> None:
    settings.JOBDEDUP_STORES = {"default": REDIS}
    meet(3)
    drain.run(never)
    settings.JOBDEDUP_RETENTION = 0.05
    time.sleep(0.1)
    assert prune(never) == {"events": 3}


def test_it_can_be_switched_off(using: str, settings: Any) -> None:
    settings.JOBDEDUP_HISTORY = "off"
    meet(1)
    assert drain.run(never) == {}
    assert told(using) == []


def test_it_stops_between_two_batches(using: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(history, "BATCH", 10)
    meet(25, shard=0)
    asked = iter([False, False, False, True, True])
    assert drain.run(lambda: next(asked)) == {"events": 20}


def test_a_store_that_does_not_answer_is_said(using: str, monkeypatch: Any) -> None:
    stores["default"].line.breaker.failed("down")  # type: ignore[attr-defined]
    assert drain.run(never) == {"unavailable": 1}


def test_a_database_without_tables_is_said_with_what_to_do(
    celery_env: Environment, sqlite_engine: Engine, settings: Any, tmp_path: Path
) -> None:
    settings.JOBDEDUP_STORES = {"default": REDIS}
    settings.JOBDEDUP_HISTORY = "abnormal"
    settings.DATABASE_ROUTERS = [Toward("bare")]
    drain.reset()
    errors: list[str] = []

    def heard(error: str, **_: Any) -> None:
        errors.append(error)

    signals.store_unavailable.connect(heard)
    with Engine("sqlite", "bare", {**sqlite_engine.database, "NAME": str(tmp_path / "bare")}).known():
        assert drain.run(never) == {"unavailable": 1}
        assert prune(never) == {"unavailable": 1}
    signals.store_unavailable.disconnect(heard)
    assert [error.partition(";")[2] for error in errors] == [
        " run: manage.py migrate jobdedup --database bare"
    ] * 2


def test_a_project_without_a_database_has_no_history(settings: Any, monkeypatch: Any) -> None:
    settings.JOBDEDUP_HISTORY = "abnormal"
    monkeypatch.setattr(connections["default"], "vendor", "unknown")
    assert history_alias() is None
