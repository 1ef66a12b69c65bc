"""A dispatch inside an open transaction takes effect at once: developers are told, once a task."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import override_settings

from django_jobdedup.dispatching import transactions
from tests.jobs import tasks
from tests.rig.engines import Engine
from tests.rig.environment import Environment

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has been warned so far."""
    monkeypatch.setattr(transactions, "_warned", set())


@pytest.fixture(autouse=True)
def here(celery_env: Environment) -> None:
    """All of it in a world of its own."""


def test_under_debug_each_task_is_warned_of_once(log: pytest.LogCaptureFixture, key: str) -> None:
    with override_settings(DEBUG=True), transaction.atomic():
        for number in range(3):
            tasks.until_executed.delay(f"{key}-{number}")
        tasks.while_executing.delay(key)
    said = [record.getMessage() for record in log.records]
    assert len(said) == 2
    assert said[0].startswith("tests.jobs.tasks.until_executed is dispatched inside an open transaction")
    assert "until_executed.delay_on_commit(...)" in said[0]
    assert said[1].startswith("tests.jobs.tasks.while_executing is")


def test_for_another_database_it_says_what_waits_for_that_one(
    log: pytest.LogCaptureFixture, key: str, sqlite_engine: Engine
) -> None:
    """Celery's ``delay_on_commit`` knows the default database only."""
    alias = sqlite_engine.alias
    with override_settings(DEBUG=True), transaction.atomic(using=alias):
        tasks.until_executed.delay(key)
    (record,) = log.records
    assert f"inside an open transaction of database {alias!r}" in record.getMessage()
    assert f"Write transaction.on_commit(partial(until_executed.delay, ...), using={alias!r}) instead" in (
        record.getMessage()
    )


def test_nobody_is_warned_of_a_call_that_fails(log: pytest.LogCaptureFixture, key: str) -> None:
    with (
        override_settings(DEBUG=True),
        transaction.atomic(),
        pytest.raises(ImproperlyConfigured, match=r"There is no lock store 'defualt'.* Did you mean"),
    ):
        tasks.until_executed.apply_async((key,), unique={"store": "defualt"})
    assert [record for record in log.records if "open transaction" in record.getMessage()] == []


def test_nobody_is_warned_where_there_is_nothing_to_warn_of(log: pytest.LogCaptureFixture, key: str) -> None:
    with transaction.atomic():
        tasks.until_executed.delay(key)
    with override_settings(DEBUG=True):
        tasks.until_executed.delay(key)
        with transaction.atomic():
            tasks.plain.delay(key)
            tasks.until_executed.apply_async((key,), unique=False)
            tasks.until_executed.delay_on_commit(key)
    assert log.records == []
