"""A run that its store did not answer at the start: its row says how it ended, and does not run again."""

from __future__ import annotations

import pytest

from django_jobdedup.middleware.releasing import give_back
from django_jobdedup.outcomes import How
from tests.jobs import tasks

from .conftest import Base


@pytest.mark.parametrize(
    ("lock", "how", "seats"), [("until_executed", How.RELEASE, [""]), ("until_expired", How.KEEP, ["K"])]
)
def test_it_has_ended(base: Base, lock: str, how: How, seats: list[str]) -> None:
    """Also under a lock that outlives the run: it is kept by a row that nobody publishes again."""
    with base.body(getattr(tasks, lock), "a") as body:
        body.ended(how, "success")
        give_back(body.execution, None)
    (row,) = base.rows()
    assert ([row.seat], row.state, row.publish_at) == (seats, "done", None)
