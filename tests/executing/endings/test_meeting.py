"""A start that meets others: every strategy for a start, in every pool, beside one holder and beside two."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import pytest
import redis
from celery.result import AsyncResult

from django_jobdedup import Reschedule, Wait
from tests.rig.journal import Run

from ..conftest import new_key
from ..strategy_tasks import let_end
from . import jobs
from .rows import POOLS, PREFORK
from .troupe import AT_A_TIME, Troupe
from .waits import Story, tell_all, until

# All is played in the setup of the first test.
pytestmark = [pytest.mark.worker, pytest.mark.timeout(240), pytest.mark.alone]

LONG: Final = 60.0
"""Seconds that a holder runs unless it is let end."""
PATIENT: Final = jobs.VISIBILITY / 3
SOON: Final = Reschedule(after=0.3, up_to=0.6)
STRATEGIES: Final[dict[str, Any]] = {
    "skip": "skip",
    "log": "log",
    "reschedule": SOON,
    "wait": Wait(PATIENT, then="skip"),
    "wait in vain, skip": Wait(0.3, then="skip"),
    "wait in vain, log": Wait(0.3, then="log"),
    "wait in vain, reschedule": Wait(0.3, then=SOON),
}
RUNS: Final = ("reschedule", "wait", "wait in vain, reschedule")
"""Those under which the newcomer runs in the end."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One newcomer."""

    how: str
    pool: str
    limit: int


CELLS: Final = [Cell(how, pool, limit) for how in STRATEGIES for limit in (1, 2) for pool in POOLS]


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of it."""

    holders: list[AsyncResult]
    newcomer: AsyncResult
    value: Any
    runs: list[Run]
    log: list[str]


def _told(players: Troupe, cell: Cell, busy: Counter[str], client: redis.Redis) -> Story[Seen]:
    """The holders run in prefork: a start that waits keeps a solo worker from everything else."""
    yield from until(lambda: busy[cell.pool] < AT_A_TIME[cell.pool] / 3, 200, "a free stage")
    busy[cell.pool] += 1
    key, worker = new_key(), players.standing[cell.pool]
    unique = {"limit": cell.limit, "on_conflict": STRATEGIES[cell.how]}
    call = {"args": (key, LONG), "unique": unique}
    try:
        holders = [jobs.meeting.apply_async(**call, queue=PREFORK) for _ in range(cell.limit)]
        yield from until(lambda: len(players.runs(key)) == cell.limit, 60, "the holders")
        newcomer = jobs.meeting.apply_async(**{**call, "args": (key,)}, queue=cell.pool)

        def said() -> list[str]:
            return [line for line in worker.log.splitlines() if newcomer.id in line]

        if cell.how in RUNS:
            words = "waits for job" if cell.how == "wait" else "is put off behind job"
            yield from until(lambda: any(words in line for line in said()), 60, f"{newcomer.id} {words}")
            assert len(players.journal.runs(key)) == cell.limit
            let_end(client, players.environment.namespace, key)
        yield from until(newcomer.ready, 60, "the newcomer")
        value, log = newcomer.get(timeout=5), said()
    finally:
        let_end(client, players.environment.namespace, key)
        busy[cell.pool] -= 1
    for each in holders:
        yield from until(each.ready, 60, "the holders' end")
    return Seen(holders, newcomer, value, players.journal.runs(key), log)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, players: Troupe) -> dict[Cell, Seen | Exception]:
    """What came of each selected cell; all of them are played side by side."""
    chosen = [item.callspec.params.get("cell") for item in request.session.items if hasattr(item, "callspec")]
    busy: Counter[str] = Counter()
    with redis.Redis.from_url(players.environment.redis_url) as client:
        return tell_all({cell: _told(players, cell, busy, client) for cell in CELLS if cell in chosen})


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.how}, {cell.pool}, limit {cell.limit}")
def test_the_newcomer_does_what_its_strategy_says(found: dict[Cell, Seen | Exception], cell: Cell) -> None:
    seen = found[cell]
    if isinstance(seen, Exception):
        raise seen
    ids = [each.id for each in seen.holders]
    own = [run for run in seen.runs if run.id == seen.newcomer.id]
    others = [run for run in seen.runs if run.id in ids]
    assert len(others) == cell.limit
    assert ("waits for job" in "".join(seen.log)) is cell.how.startswith("wait")
    assert ("is put off" in "".join(seen.log)) is cell.how.endswith("reschedule")
    assert any("WARNING" in line and "does not run" in line for line in seen.log) is cell.how.endswith("log")
    if cell.how in RUNS:
        (run,) = own
        assert seen.value == seen.newcomer.id
        assert sum(run.overlaps(other) for other in others) < cell.limit
    else:
        assert own == []
        assert seen.value["suppressed_by"] in ids
