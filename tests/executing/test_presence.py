"""A running worker is known again to a store that has lost its memory, and on queues added later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_jobdedup.executing.presence import LIVES, Presence
from django_jobdedup.stores.handler import stores
from tests.rig.environment import Environment


@pytest.fixture
def presence(celery_env: Environment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Presence]:
    """One whose half minute has always just passed."""
    monkeypatch.setattr("django_jobdedup.executing.presence.AGAIN", 0.0)
    yield Presence()
    stores.reset()


def test_a_store_that_forgot_the_worker_is_told_again(presence: Presence, redis_client, celery_env) -> None:
    """Not only once an hour: new senders would lock nothing until then."""
    presence.announce(["reports"])
    for key in redis_client.scan_iter(match=f"*{celery_env.namespace}*"):
        redis_client.delete(key)
    assert stores["default"].announced("reports") is False
    presence.refresh()
    assert stores["default"].announced("reports") is True


def test_a_queue_that_is_added_at_run_time_is_announced(presence: Presence) -> None:
    """``control.add_consumer`` changes the queues under the worker."""
    queues = {"reports": object()}
    presence.announce(queues)
    queues["mail"] = object()
    assert stores["default"].announced("mail") is False
    presence.refresh()
    assert stores["default"].announced("mail") is True


def test_one_store_that_cannot_be_made_does_not_silence_the_others(presence: Presence, settings: Any) -> None:
    redis = {"BACKEND": "django_jobdedup.stores.redis.store.RedisStore", "LOCATION": "jobdedup"}
    settings.JOBDEDUP_STORES = {"broken": {"BACKEND": "no.such.Store"}, "default": redis}
    presence.announce(["reports"])
    assert stores["default"].announced("reports") is True


def test_the_key_outlives_a_pause_of_all_workers() -> None:
    """Thirty days, as the design says."""
    assert LIVES == 30 * 24 * 3600
