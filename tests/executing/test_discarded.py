"""A late-acked job whose process was lost, and whose message is thrown away when it comes again."""

from __future__ import annotations

import pytest

from testproject.celery import app
from tests.rig.waiting import wait_for

from . import strategy_tasks as tasks
from .conftest import call_until_accepted, new_key
from .place import Place

pytestmark = [pytest.mark.worker, pytest.mark.timeout(60)]


def test_a_revoked_one_frees_its_lock_when_the_lease_is_over(place: Place) -> None:
    key = new_key()
    first = tasks.poisonous.apply_async((key, 1, False, 1.0))
    wait_for(lambda: place.values(key), 10)
    app.control.revoke(first.id)
    wait_for(lambda: f"Discarding revoked task: {tasks.poisonous.name}[{first.id}]" in place.worker.log, 15)
    again = call_until_accepted(lambda: tasks.poisonous.delay(key, 2, True), timeout=5)
    assert again.get(timeout=10) == 2
    assert place.values(key) == [1, 2]
    place.wait_until_free()


def test_an_expired_one_frees_its_lock(place: Place) -> None:
    """It waits for the lease of the lost run, and is too old then."""
    key = new_key()
    first = tasks.poisonous.apply_async((key, 1, False, 0.5), expires=1.0)
    wait_for(lambda: place.values(key), 10)
    wait_for(lambda: f"Discarding revoked task: {tasks.poisonous.name}[{first.id}]" in place.worker.log, 15)
    again = call_until_accepted(lambda: tasks.poisonous.delay(key, 2, True), timeout=5)
    assert again.get(timeout=10) == 2
    place.wait_until_free()


def test_a_retry_that_is_revoked_before_its_sender_has_ended_frees_its_lock(place: Place) -> None:
    key = new_key()
    first = tasks.slow_to_hand_over.delay(key)
    wait_for(lambda: place.values(key), 10)
    app.control.revoke(first.id)
    again = call_until_accepted(lambda: tasks.slow_to_hand_over.delay(key, 2), timeout=12)
    assert again.get(timeout=10) == 2
    assert place.values(key) == [1, 2]
    place.wait_until_free()
