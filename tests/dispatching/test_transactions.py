"""A dispatch inside an open transaction takes effect at once: developers are told, once a task."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.test import override_settings

from tests.jobs import tasks
from tests.rig.environment import Environment

pytestmark = pytest.mark.django_db(transaction=True)


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
