"""A body of which the worker's main process has not heard yet, or never will: its lease is renewed."""

from __future__ import annotations

import time

import pytest

from tests.rig.waiting import wait_for

from . import deaf_parent
from . import strategy_tasks as tasks
from .conftest import new_key
from .place import Place

pytestmark = [pytest.mark.worker, pytest.mark.timeout(90)]

ALSO = (deaf_parent.MODULE,)


@pytest.mark.parametrize("end", [deaf_parent.TARDY, deaf_parent.CUT])
def test_a_body_that_was_not_heard_of_keeps_its_lock(place: Place, end: str) -> None:
    """It takes five leases."""
    key = new_key()
    first = tasks.polling.apply_async((key, 5.0), task_id=key + end, unique={"lease": 1})
    wait_for(lambda: place.values(key), 10)
    while not place.journal.ended(key):
        again = tasks.polling.delay(key, 0.0)
        assert again.id == first.id or place.journal.ended(key)
        time.sleep(0.2)
    place.wait_until_free()
    assert first.id in [run.id for run in place.journal.ended(key)]
    assert place.journal.overlaps(key) == []
