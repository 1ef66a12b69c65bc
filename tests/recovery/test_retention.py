"""Retention: what has ended long ago leaves in batches; what still counts stays."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_jobdedup.models import JobIntent, LockEvent
from django_jobdedup.recovery import retention
from django_jobdedup.recovery.duty import never
from django_jobdedup.recovery.retention import prune
from tests.rig.engines import Engine

WEEK = 7 * 86_400
NOW = round(time.time() * 1000)
OLD, YOUNG = NOW - (WEEK + 3600) * 1000, NOW - (WEEK - 3600) * 1000


@pytest.fixture
def using(engine: Engine, settings: Any) -> str:
    """The alias of an empty database with a store in it."""
    settings.JOBDEDUP_STORES = engine.stores
    return engine.alias


def rows(using: str, number: int, **values: Any) -> None:
    """Write rows that ended long ago, but for *values*."""
    first = JobIntent.objects.using(using).count()
    JobIntent.objects.using(using).bulk_create(
        JobIntent(
            **{
                "shard": 0,
                "fingerprint": f"{first + place:064x}",
                "key": f"{first + place:064x}",
                "token": values.get("state", "done"),
                "state": "done",
                "created_at": OLD,
                "ended_at": OLD,
                "mark_until": OLD,
                **values,
            }
        )
        for place in range(number)
    )


def events(using: str, number: int, at: int) -> None:
    """Write events."""
    LockEvent.objects.using(using).bulk_create(
        LockEvent(at=at, what="lost", shard=0, fingerprint=f"{place:064x}", token="a")
        for place in range(number)
    )


def left(using: str) -> list[str]:
    return list(JobIntent.objects.using(using).order_by("id").values_list("token", flat=True))


def test_what_has_ended_long_ago_leaves_and_the_rest_stays(using: str) -> None:
    rows(using, 3)
    rows(using, 1, state="superseded")
    rows(using, 1, state="lost")
    rows(using, 1, token="young", ended_at=YOUNG)
    rows(using, 1, token="marked", mark_until=NOW + 3600_000)
    rows(using, 1, token="held", attention=OLD, ended_at=None)
    rows(using, 1, token="pending", ended_at=None, publish_at=1, state="pending")
    rows(using, 1, state="dead")
    events(using, 4, OLD)
    events(using, 2, YOUNG)

    assert prune(never) == {"intents": 5, "events": 4}
    assert left(using) == ["young", "marked", "held", "pending", "dead"]
    assert LockEvent.objects.using(using).count() == 2


def test_an_ended_row_is_its_own_marker_and_leaves_with_it(using: str, settings: Any) -> None:
    settings.JOBDEDUP_RETENTION = WEEK
    rows(using, 1, mark_until=OLD + round(WEEK * 1000))
    rows(using, 1, token="marked", mark_until=round(time.time() * 1000) + 60_000)

    assert prune(never)["intents"] == 1
    assert left(using) == ["marked"]


def test_the_clock_of_the_database_counts(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose own clock is two weeks ahead deletes no row that still counts."""
    rows(using, 1, token="young", ended_at=YOUNG)
    rows(using, 1, token="marked", mark_until=NOW + 3600_000)
    rows(using, 1)
    events(using, 1, YOUNG)
    ahead = time.time() + 2 * WEEK
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert prune(never) == {"intents": 1, "events": 0}
    assert left(using) == ["young", "marked"]


def test_it_deletes_in_batches_by_primary_key(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 10)
    rows(using, 35)
    with CaptureQueriesContext(connections[using]) as queries:
        assert prune(never)["intents"] == 35

    deletes = [query["sql"] for query in queries if query["sql"].startswith("DELETE")]
    assert len(deletes) == 4
    assert all(" IN (" in sql for sql in deletes)


def test_it_stops_between_two_batches(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 10)
    rows(using, 35)
    asked = iter([False, False, True, True])

    assert prune(lambda: next(asked)) == {"intents": 20, "events": 0}


def test_the_setting_says_how_long(using: str, settings: Any) -> None:
    settings.JOBDEDUP_RETENTION = WEEK / 2
    rows(using, 1, ended_at=YOUNG, mark_until=YOUNG)

    assert prune(never)["intents"] == 1


def test_a_row_that_comes_back_to_life_meanwhile_stays(using: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A late copy of its message is claimed between the look and the delete."""
    rows(using, 2)
    looks = JobIntent.objects.using(using).none().__class__.values_list

    def claimed_meanwhile(self: Any, *names: str, **more: Any) -> Any:
        found = list(looks(self, *names, **more)[: retention.BATCH])
        first = JobIntent.objects.using(using).order_by("id")[:1].get()
        JobIntent.objects.using(using).filter(pk=first.pk).update(attention=NOW, token="alive")
        return found

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(retention.JobIntent.objects.none().__class__, "values_list", claimed_meanwhile)
        prune(never)

    assert left(using) == ["alive"]
