"""The reaper: what time has freed is swept, told, and its waiters are answered.

A dead holder frees its key by itself: whoever meets the record next sweeps it. The reaper sweeps those
that nobody meets, so that a lost run is known in seconds and not when the next equal call comes. The
cost grows with what has lapsed, not with what is held.
"""

from __future__ import annotations

import logging
from typing import Final

from django_jobdedup.conf import conf
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware.waking import wake
from django_jobdedup.recovery.duty import UNAVAILABLE, Stop, Tally, reachable
from django_jobdedup.recovery.freeing import free
from django_jobdedup.recovery.lost_runs import readers
from django_jobdedup.recovery.overdue import publish_overdue
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.results import Doubt, Lapse, Unavailable

logger = logging.getLogger("django_jobdedup")

#: Records in one step: a script that looks at more keeps Redis busy for too long.
BATCH: Final = 100


def reap(stop: Stop) -> Tally:
    """Sweep every shard of every store.

    Counts ``lost``, ``lapsed`` and ``abandoned`` holders, ``answered`` waiters of lost runs, ``overdue``
    calls that were published again, and seats ``freed`` because their message has vanished.
    """
    tally = Tally()
    doubtful: list[tuple[Store, Doubt]] = []
    for store in reachable("reaper", tally):
        answers = True  # a result backend that does not answer is asked once, then in the next pass
        for shard in range(store.shards):
            if stop() or not _sweep(store, shard, stop, tally, doubtful):
                break  # on to the next store: this one does not answer
            if answers:
                told = readers.read(store, shard, stop)
                answers = not told[UNAVAILABLE]
                tally += told
    if doubtful and not stop():
        tally += free(doubtful)
    return tally


def _sweep(store: Store, shard: int, stop: Stop, tally: Tally, doubtful: list[tuple[Store, Doubt]]) -> bool:
    """Sweep one shard until nothing is found; False when the store does not answer."""
    while True:
        reaped = store.reap(shard, BATCH)
        if isinstance(reaped, Unavailable):
            tally[UNAVAILABLE] += 1
            return False
        for lapse in reaped.lapses:
            tally[lapse.what] += 1
            _log(lapse)
        # While the app is off no worker claims: it would be published again and again.
        if reaped.overdue and conf.MODE != "off":
            tally += publish_overdue(store, reaped.overdue)
        for waiter in reaped.waiters:
            wake(waiter)
        doubtful.extend((store, doubt) for doubt in reaped.doubtful)
        if not (reaped.lapses or reaped.overdue or reaped.doubtful) or stop():
            return True


def _log(lapse: Lapse) -> None:
    """Say it once: every lapse is swept by one process only."""
    task_id = task_id_of(lapse.id)
    said = {"task_id": task_id, "fingerprint": lapse.ref.fingerprint, "lock": lapse.name}
    if lapse.what == "lost":
        logger.warning(
            "job %s of lock %s was lost: it ran in %s, which renews its lease no more",
            task_id,
            lapse.name,
            lapse.by or "an unknown process",
            extra={"action": "lost", **said},
        )
    else:
        logger.info(
            "job %s no longer holds lock %s: %s",
            task_id,
            lapse.name,
            "nobody confirmed that its message exists" if lapse.what == "abandoned" else "its time is over",
            extra={"action": "lapsed", **said},
        )
