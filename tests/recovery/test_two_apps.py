"""Two Celery apps in one process, each with a broker of its own: a row goes to the one that was called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.exceptions import OperationalError

from django_jobdedup.middleware.apps import app_named, app_of_stored
from django_jobdedup.models import JobIntent
from django_jobdedup.recovery.duty import never
from django_jobdedup.recovery.relay import back_off, relay
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis
from tests.jobs import tasks
from tests.jobs.tasks import unique
from tests.rig.engines import Engine


@pytest.fixture
def other() -> Iterator[tuple[Any, redis.Redis]]:
    """The other app, and what lies in its broker."""
    with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as client:
        other = Celery("the_other", broker=server.url, set_as_current=False)
        other.conf.accept_content = ["json"]
        other.task(name="the_other.work", unique=unique(key="key"))(_work)
        other.finalize()
        yield other, client
        other.close()


def _work(key: str) -> None:
    """Do nothing."""


def test_the_relay_publishes_through_the_app_that_was_called(
    postgresql_engine: Engine, settings: Any, celery_env: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOBDEDUP_STORES = postgresql_engine.stores
    settings.JOBDEDUP_CONFIRM_WITHIN = 0.1
    back_off.over()
    there, client = other

    def down(*_: Any, **__: Any) -> None:
        raise OperationalError("down")

    with monkeypatch.context() as patch:
        patch.setattr("django_jobdedup.dispatching.inline.publish", down)
        first = tasks.until_executed.delay("a")
        second = there.tasks["the_other.work"].delay("a")
    rows = JobIntent.objects.using(postgresql_engine.alias).order_by("id")
    assert [app_of_stored(bytes(row.call or b"")) for row in rows] == [app, there]
    assert relay(never)["published"] == 2
    (found,) = client.lrange("celery", 0, -1)
    assert second.id.encode() in found
    assert first.id.encode() not in found


def test_an_app_that_is_not_loaded_here_is_the_current_one() -> None:
    assert app_named("no such app") is app_named("") is app_named(app.main)
    assert app_of_stored(b"no stored call") is app_named("")
