"""A lock that outlives the run: which endings keep it, in every pool, and which free it at once.

How long it is kept is told in ``../test_lock_types.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import celery
import pytest
from celery.result import AsyncResult

from django_jobdedup import peek
from testproject.celery import app
from tests.rig.process import ROOT

from ..conftest import new_key
from . import jobs
from .plays import Play, Scene, call, expired_waiting, revoked_running, revoked_waiting
from .rows import ACKS, GEVENT, LIMIT, POOLS, PREFORK, SHORT, SOLO, THREADS, TOLD
from .troupe import Troupe
from .waits import Story, T, tell_all, until

# All is played in the setup of the first test.
pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.alone]

VERSION: Final = tuple(int(part) for part in celery.__version__.split(".")[:2])
FREE, KEPT = "free", "kept"
KINDS: Final = ("outliving", "outliving_failures")
LONG: Final = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One ending, and what becomes of the lock: with ``until_expired``, and with ``keep_on_failure`` too.

    ``pools``: where it can be played. ``deaf``: where the body is not cut short and comes to a good end.
    ``again``: pools in which a late-acked job runs once more, and comes to a good end. ``alone``: those in
    which it takes the worker along; ``kills``: it is the worker that ends.
    """

    name: str
    found: tuple[str, str]
    play: Play
    pools: Sequence[str] = POOLS
    acks: Sequence[str] = ACKS
    deaf: Sequence[str] = ()
    again: Sequence[str] = ()
    alone: Sequence[str] = ()
    kills: bool = False


ROWS: Final = (
    Row("success", (KEPT, KEPT), call("succeed", 0.1)),
    Row("`Ignore`", (KEPT, KEPT), call("ignore")),
    Row("failure", (FREE, KEPT), call("fail", 0.1)),
    Row("`retry()`, until they are used up", (FREE, KEPT), call("retry", jobs.RETRY_AFTER)),
    Row("`Reject`", (FREE, KEPT), call("reject")),
    Row(
        "`SystemExit`", (FREE, KEPT), call("leave_once", 0.3),
        again=(SOLO, THREADS, GEVENT), alone=(SOLO,),
    ),
    Row("hard time limit", (FREE, KEPT), call("succeed", time_limit=LIMIT), deaf=(SOLO, THREADS)),
    Row("its process is killed", (FREE, KEPT), call("vanish", 0.3), pools=(PREFORK,)),
    Row("`Reject(requeue=True)`", (FREE, FREE), call("requeue_once"), again=POOLS),
    Row("terminated", (FREE, FREE), revoked_running(terminate=True), pools=(PREFORK, GEVENT)),
    Row("revoked", (FREE, FREE), revoked_waiting),
    Row("expired", (FREE, FREE), expired_waiting),
    Row(
        "its worker is killed", (FREE, FREE), call(), pools=(PREFORK, THREADS, GEVENT), acks=("early",),
        kills=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One ending in one pool with one ack under one policy."""

    row: Row
    pool: str
    ack: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.row.name}, {self.ack}, {self.pool}, {self.kind}"

    @property
    def task(self) -> Any:
        return getattr(jobs, self.kind)[self.ack]

    @property
    def alone(self) -> bool:
        """Whether it ends its worker."""
        return self.row.kills or self.pool in self.row.alone

    @property
    def ends_well(self) -> bool:
        """Whether the last run comes to a good end of its own."""
        return self.pool in self.row.deaf or (self.ack == "late" and self.pool in self.row.again)

    @property
    def expected(self) -> str:
        return KEPT if self.ends_well else self.row.found[KINDS.index(self.kind)]


CELLS: Final = [
    Cell(row, pool, ack, kind)
    for row in ROWS
    for ack in row.acks
    for pool in row.pools
    for kind in KINDS
]  # fmt: skip


BROKEN: Final = [
    cell for cell in CELLS if (cell.row.name, cell.pool, cell.ack) == ("`SystemExit`", PREFORK, "late")
]
"""Cells in which a Celery before 5.7 fails itself."""
ALL: Final = [
    pytest.param(
        cell,
        id=cell.name,
        marks=pytest.mark.skipif(cell in BROKEN and VERSION < TOLD, reason="needs a newer Celery"),
    )
    for cell in CELLS
]


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a cell: the first job, the call after it, and how the last body of the first ended."""

    first: AsyncResult
    after: AsyncResult
    ended: str | None


def staged(players: Troupe, cell: Cell, story: Story[T]) -> Story[T]:
    """Tell the story of a cell where it is played."""
    return players.on_stage("alone" if cell.alone else cell.pool, story, 280)


def begin(players: Troupe, cell: Cell, key: str) -> Story[tuple[Scene, AsyncResult]]:
    """Play a cell, on a worker of its own if it ends that; give the scene and the job."""
    queue, worker = cell.pool, players.standing[cell.pool]
    if cell.alone:
        queue, worker = key, players.start(key, cell.pool, 1, {})
        yield from until(lambda: " ready." in worker.log, 60, "a worker that is ready")
    seconds = SHORT if cell.pool in cell.row.deaf else LONG
    scene = Scene(players.environment, cell.pool, worker, queue, seconds, players.runs)
    return scene, (yield from cell.row.play(scene, cell.task, key))


def _told(players: Troupe, cell: Cell) -> Story[Seen]:
    key = new_key()
    scene, first = yield from begin(players, cell, key)
    queue, worker = scene.queue, scene.worker
    if cell.row.kills:
        yield from scene.start(key)
        worker.kill()
    if cell.alone:
        yield from until(lambda: not worker.running or _found(first) == cell.expected, 30, "its end")
        app.control.add_consumer(queue, destination=[players.standing[cell.pool].name])
    yield from until(lambda: _found(first) == cell.expected, 30, f"a lock that is {cell.expected}")
    after = cell.task.apply_async((key,), queue=queue)
    own = [run for run in players.journal.runs() if run.key == key and run.id == first.id]
    return Seen(first, after, own[-1].how if own else None)


def _found(first: AsyncResult) -> str:
    """Say what has become of the lock; nothing while the job may still run."""
    lock = peek(first)
    states = [holder.state for holder in lock.holders] if lock is not None else []
    return FREE if not states else KEPT if states == ["kept"] else ""


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, players: Troupe) -> dict[Cell, Seen | Exception]:
    """What came of each selected cell; all of them are played side by side."""
    chosen = [item.callspec.params.get("cell") for item in request.session.items if hasattr(item, "callspec")]
    return tell_all({cell: staged(players, cell, _told(players, cell)) for cell in CELLS if cell in chosen})


@pytest.mark.parametrize("cell", ALL)
def test_it_is_kept_or_free_as_the_page_says(found: dict[Cell, Seen | Exception], cell: Cell) -> None:
    seen = found[cell]
    if isinstance(seen, Exception):
        raise seen
    assert (seen.ended == "returned") >= cell.ends_well
    if cell.expected == KEPT:
        assert (str(seen.after.outcome), seen.after.id) == ("suppressed", seen.first.id)
    else:
        assert str(seen.after.outcome) == "accepted"


def test_the_page_says_so() -> None:
    page = (ROOT / "docs" / "explanation" / "endings.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert f"| {row.name} | {row.found[0]} | {row.found[1]} |" in page
