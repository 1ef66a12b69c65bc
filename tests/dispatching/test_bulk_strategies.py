"""Under every strategy a batch is decided as if its calls came one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
import redis

from django_jobdedup import BulkError, Reschedule, dispatch_many
from django_jobdedup.dead import dead_jobs
from django_jobdedup.strategies.registry import STRATEGIES
from tests.jobs import tasks
from tests.rig.environment import Environment

from .looking import ids, state

pytestmark = pytest.mark.django_db

TASK: Final = tasks.until_executed
CALLS: Final = 4
STRATEGY: Final[dict[str, Any]] = {"reschedule": Reschedule(5)}
"""What is written where the name alone would not do."""
BESIDE_OTHERS: Final = ("skip", "log", "raise", "reject")
"""Those that go with a limit above one."""
CELLS: Final = [
    (how, limit)
    for how in STRATEGIES
    for limit in (1, 2)
    if how != "wait" and (limit == 1 or how in BESIDE_OTHERS)
]


def one_by_one(calls: Sequence[Any]) -> list[Any]:
    """Make the calls; an error stands in the place of its result."""
    found: list[Any] = []
    for call in calls:
        try:
            found.append(call.apply_async())
        except Exception as error:
            found.append(error)
    return found


def at_once(calls: Sequence[Any]) -> list[Any]:
    """Make the calls as a batch; an error stands in the place of its result."""
    try:
        return dispatch_many(calls)
    except BulkError as error:
        return [error.errors.get(number, result) for number, result in enumerate(error.results)]


@pytest.mark.parametrize(("how", "limit"), CELLS)
def test_a_batch_is_decided_as_calls_one_after_the_other(
    world: Environment, redis_client: redis.Redis, key: str, how: str, limit: int
) -> None:
    """Which id each result has, what is queued, who holds the lock, and what is dead."""

    def told(way: Any, key: str) -> tuple[Any, ...]:
        unique = {"on_conflict": STRATEGY.get(how, how), "limit": limit}
        calls = [
            TASK.s(key, seconds=n).set(queue=key, unique=unique, countdown=100 - 10 * n) for n in range(CALLS)
        ]
        before = dead_jobs().count()
        results = way(calls)
        queued = ids(redis_client, world.namespace, key)
        number = {id: place for place, id in enumerate(queued)}
        words = [
            (type(each).__name__, number[each.holder_id])  # type: ignore[attr-defined]
            if isinstance(each, Exception)
            else (str(each.outcome), each.duplicate, number[each.id])
            for each in results
        ]
        holders = [(number[id], kind) for id, kind in state(results[0], TASK.name)]
        return words, len(queued), holders, dead_jobs().count() - before

    batch = told(at_once, f"{key}-batch")
    assert batch == told(one_by_one, f"{key}-single")
    accepted = [word for word in batch[0] if word[0] == "accepted"]
    assert len(accepted) == (CALLS if how in ("replace", "keep_soonest") else limit)
    assert batch[3] == (CALLS - limit if how == "reject" else 0)
