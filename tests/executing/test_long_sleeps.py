"""A put-off longer than a message may sleep: it hops, and a hop is no conflict more."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

from django_jobdedup import JobDead

from . import strategy_tasks as tasks
from .conftest import running
from .place import Place

#: The worker's visibility timeout is three seconds, so a message may sleep for one.
pytestmark = [pytest.mark.worker, pytest.mark.timeout(90)]


def hops(place: Place, id: str) -> list[tuple[datetime, float]]:
    """Give when the worker has put a job off, and for how long."""
    found = re.findall(
        rf"\[([\d-]+ [\d:]+,\d+)[^\n]*{id}\] is put off[^\n]*again in ([\d.]+) s", place.worker.log
    )
    return [(datetime.fromisoformat(at.replace(",", ".")), float(after)) for at, after in found]


@pytest.mark.parametrize("task", [tasks.sleeping_long, tasks.sent_much_later], ids=["start", "dispatch"])
def test_a_long_pause_is_one_conflict_however_often_the_message_hops(place: Place, task: Any) -> None:
    """Each hop asks the gate, which opens before the pause is over."""
    key, first = running(place, task, 3.0)
    second = task.delay(key, 2)
    assert second.get(timeout=20) == 2
    assert first.get(timeout=5) == 1
    assert len(hops(place, second.id)) >= 2
    assert all(after <= 1 for _, after in hops(place, second.id))
    assert place.values(key) == [1, 2]
    assert place.journal.overlaps(key) == []


def test_the_strategy_is_asked_again_when_its_pause_is_over(place: Place) -> None:
    """Five seconds less a fifth, of which the last hop takes what is left."""
    key, first = running(place, tasks.sleeping_long, 9.0)
    second = tasks.sleeping_long.delay(key, 2)
    with pytest.raises(JobDead, match="put off 1 times"):
        second.get(timeout=20)
    assert first.state != "SUCCESS", "it runs still"
    times = [at for at, _ in hops(place, second.id)]
    assert (times[-1] - times[0]).total_seconds() >= 2.5
    assert len(times) >= 4
    assert first.get(timeout=10) == 1
    assert place.values(key) == [1]
    place.wait_until_free()
