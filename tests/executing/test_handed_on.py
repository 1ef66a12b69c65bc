"""A delivery that Celery's pool gives to a second process, because the first died before it was heard of."""

from __future__ import annotations

import pytest

from django_jobdedup import JobDead
from tests.rig.waiting import wait_for

from . import slow_parent
from . import strategy_tasks as tasks
from .conftest import new_key
from .place import Place

pytestmark = [pytest.mark.worker, pytest.mark.timeout(90)]

ALSO = (slow_parent.MODULE,)


@pytest.mark.parametrize("end", ["", slow_parent.LATE])
def test_each_process_that_runs_the_body_is_a_start(place: Place, end: str) -> None:
    key = new_key()
    first = tasks.poisonous.apply_async((key, 1), task_id=key + end)
    with pytest.raises(JobDead, match="started 3 times without an end"):
        first.get(timeout=40)
    assert place.values(key) == [1, 1, 1]
    assert place.journal.overlaps(key) == []
    place.wait_until_free()


@pytest.mark.parametrize("end", ["", slow_parent.LATE])
def test_an_early_acked_job_runs_again_when_the_lease_of_the_dead_process_is_over(
    place: Place, end: str
) -> None:
    key = new_key()
    first = tasks.fatal_once.apply_async((key,), task_id=key + end)
    if not end:
        assert first.get(timeout=20) == 2
    wait_for(lambda: len(place.values(key)) == 2 or first.failed(), 20)
    assert place.journal.overlaps(key) == []
    place.wait_until_free()
