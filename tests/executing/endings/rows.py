"""The table: every ending, and where it is played. It makes the tests, and the page from what they find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.rig.tables import Place

from . import jobs, plays
from .plays import Play, call, revoked_running

PREFORK, SOLO, THREADS, GEVENT = POOLS = ("prefork", "solo", "threads", "gevent")
EARLY, LATE = ACKS = ("early", "late")
LONG: Final = 30.0
"""Seconds; a body that would run so long is cut short by what is tested."""
SHORT: Final = 1.0
"""Seconds; a body that is not cut short, because its pool does not know how, runs longer than its limit."""
LIMIT: Final = 0.5
SUCCEED: Final = call()


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One ending.

    ``play`` brings it about. ``strike``, a method of a worker, ends that instead, under a running body.
    ``deaf``: the pools that do not cut the body short. ``alone``: those in which the ending takes the worker
    along, so that each play has one of its own. ``elsewhere``: those in which it is the same as another row,
    and the words that say so. ``loses``: what runs the body is gone, so that a lease or Celery's report ends
    it. ``waits``: how long the key is held by a job that does not run, in seconds and in words. ``again``:
    what the next call does, and ``starts``: how often that one starts. ``since``: the Celery that knows it,
    and ``broken``: pools and acks in which one that is older than the page's fails itself.
    """

    table: str
    name: str
    play: Play = SUCCEED
    kind: str = "plain"
    acks: tuple[str, ...] = ACKS
    strike: str = ""
    deaf: tuple[str, ...] = ()
    celery: Mapping[str, Any] = field(default_factory=dict)
    alone: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    loses: bool = False
    waits: tuple[float, str] = (0.0, "at once")
    again: str = "succeed"
    starts: int = 1
    since: tuple[int, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()

    def task(self, ack: str) -> Any:
        """Give the task whose job ends so."""
        return getattr(jobs, self.kind)[ack]


@dataclass(frozen=True, slots=True)
class Cell:
    """One ending in one pool with one ack."""

    row: Row
    pool: str
    ack: str

    @property
    def place(self) -> Place:
        """Its place in the page."""
        return place(self.row, self.pool, self.ack)

    @property
    def name(self) -> str:
        """A name for people, unique."""
        return f"{self.row.table}: {self.row.name}, {self.ack}, {self.pool}"

    def is_known_to(self, version: tuple[int, ...]) -> bool:
        """Whether a Celery can play it."""
        oldest = TOLD if (self.pool, self.ack) in self.row.broken else self.row.since
        return version >= oldest

    @property
    def seconds(self) -> float:
        """How long the body would run where nothing else is said."""
        return SHORT if self.pool in self.row.deaf else LONG

    @property
    def alone(self) -> bool:
        """Whether it ends its worker."""
        return bool(self.row.strike) or self.pool in self.row.alone

    @property
    def paired(self) -> bool:
        """Whether one worker plays it in both acks: which body it cuts short first does not matter."""
        cold_gevent = self.pool == GEVENT and self.row.strike == "quit"
        return bool(self.row.strike) and self.pool != SOLO and not cold_gevent


def place(row: Row, pool: str, ack: str) -> Place:
    """Give the place of a cell in the page: table, row, column."""
    return (row.table if row.table == MESSAGE else f"{row.table}, {ack} ack", row.name, pool)


TOLD: Final = (5, 7)
"""The Celery of which the page tells; older ones leave another result of some endings."""
BODY, CUT, REVOKED, MESSAGE, WORKER = "body", "cut", "revoked", "message", "worker"
TURN: Final = (3.0, "when its turn comes")
"""Seconds: the worker has to be told of a queue and to come round to it."""
KILLED = dict.fromkeys((SOLO, THREADS, GEVENT), "the worker dies with it")

ROWS: Final[tuple[Row, ...]] = (
    Row(BODY, "success", call("succeed", 0.3)),
    Row(BODY, "failure", call("fail", 0.3)),
    Row(BODY, "a result that cannot be encoded", call("answer_an_object")),
    Row(BODY, "`autoretry_for`, until they are used up", call("fail", 0.0), "autoretried"),
    Row(BODY, "`retry()`, until they are used up", call("retry", jobs.RETRY_AFTER)),
    Row(
        BODY, "`retry()` with other arguments", call("retry_otherwise"), "by_how",
        again="retry_otherwise", starts=2,
    ),
    Row(BODY, "`Ignore`", call("ignore")),
    Row(BODY, "`Reject`", call("reject")),
    Row(BODY, "`Reject(requeue=True)`", call("requeue_once")),
    Row(BODY, "`replace()`", call("give_way", 0.5)),
    Row(BODY, "`SystemExit`", call("leave_once", 0.3), alone=(SOLO,), broken=((PREFORK, LATE),)),
    Row(
        BODY, "`SystemExit`, `retry_on_worker_lost`", call("leave_once", 0.3), "retried_when_lost",
        alone=(SOLO,), since=(5, 7),
    ),
    Row(BODY, "`MemoryError`", call("run_out_of_memory", 0.3), alone=(PREFORK, SOLO)),
    Row(CUT, "soft time limit", call("succeed", soft_time_limit=LIMIT), deaf=(SOLO, THREADS, GEVENT)),
    Row(CUT, "hard time limit", call("succeed", time_limit=LIMIT), deaf=(SOLO, THREADS)),
    Row(CUT, "the same, and it cleans up first", call("clean_up", time_limit=LIMIT), deaf=(SOLO, THREADS)),
    Row(
        CUT, "hard time limit, `acks_on_timeout=False`", call("succeed_once", time_limit=LIMIT),
        "back_at_timeout", (LATE,), deaf=(SOLO, THREADS),
    ),
    Row(CUT, "its process is killed", call("vanish", 0.3), elsewhere=KILLED, loses=True),
    Row(
        CUT, "the same, `reject_on_worker_lost`", call("vanish_once", 0.3), "rejected_when_lost",
        elsewhere=KILLED, loses=True,
    ),
    Row(
        CUT, "the same, `retry_on_worker_lost`", call("vanish_once", 0.3), "retried_when_lost",
        elsewhere=KILLED, loses=True, since=(5, 7),
    ),
    Row(REVOKED, "revoked while it waits in a queue", plays.revoked_waiting, waits=TURN),
    Row(REVOKED, "revoked while no worker hears it", plays.revoked_unheard),
    Row(
        REVOKED, "revoked before its eta", plays.revoked_before_eta,
        waits=(jobs.LEASE / 3, "at the next round of the leases"),
    ),
    Row(REVOKED, "revoked while it runs", revoked_running(), deaf=POOLS),
    Row(REVOKED, "the same, with `terminate`", revoked_running(terminate=True), deaf=(SOLO, THREADS)),
    Row(
        REVOKED, "the same, and it cleans up first", revoked_running("clean_up", terminate=True),
        deaf=(SOLO, THREADS),
    ),
    Row(REVOKED, "expired in a queue", plays.expired_waiting, waits=TURN),
    Row(REVOKED, "expired before its eta", plays.expired_before_eta, waits=(plays.ETA, "at its eta")),
    Row(MESSAGE, "unknown task", plays.unknown, acks=(EARLY,), starts=0, waits=TURN),
    Row(MESSAGE, "content type not accepted", plays.unaccepted, acks=(EARLY,), waits=TURN),
    Row(MESSAGE, "undecodable body", plays.undecodable, acks=(EARLY,), waits=TURN),
    Row(WORKER, "`SIGTERM`, warm shutdown", strike="terminate", deaf=POOLS),
    Row(WORKER, "`SIGQUIT`, cold shutdown", strike="quit", deaf=(THREADS,)),
    Row(
        WORKER, "`SIGQUIT`, soft shutdown", strike="quit", deaf=(THREADS, GEVENT),
        celery={"worker_soft_shutdown_timeout": 1.0},
    ),
    Row(WORKER, "`SIGKILL`", strike="kill", loses=True),
)  # fmt: skip

GROUPS: Final = (BODY, CUT, REVOKED, MESSAGE, WORKER)
_ALL: Final = [
    Cell(row, pool, ack)
    for group in GROUPS
    for ack in ACKS
    for row in ROWS
    if row.table == group and ack in row.acks
    for pool in POOLS
]
CELLS: Final = tuple(cell for cell in _ALL if cell.pool not in cell.row.elsewhere)
ELSEWHERE: Final = {
    cell.place: cell.row.elsewhere[cell.pool] for cell in _ALL if cell.pool in cell.row.elsewhere
}
"""Cells that are the same as another one, and the words that say so."""
