"""The reaper: what time has freed is swept, told, and its waiters are answered.

A dead holder frees its key by itself: whoever meets the record next sweeps it. The reaper sweeps those
that nobody meets, so that a lost run is known in seconds and not when the next equal call comes. The
cost grows with what has lapsed, not with what is held.
"""

from __future__ import annotations

import logging
from typing import Final

from django_jobdedup.recovery.duty import UNAVAILABLE, Stop, Tally, reachable
from django_jobdedup.recovery.lost_runs import readers
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.results import Lapse, Unavailable

logger = logging.getLogger("django_jobdedup")

#: Records in one step: a script that looks at more keeps Redis busy for too long.
BATCH: Final = 100


def reap(stop: Stop) -> Tally:
    """Sweep every shard of every store.

    Counts ``lost``, ``lapsed`` and ``abandoned`` holders, and ``answered`` waiters of lost runs.
    """
    tally = Tally()
    for store in reachable("reaper", tally):
        answers = True  # a result backend that does not answer is asked once, then in the next pass
        for shard in range(store.shards):
            if stop() or not _sweep(store, shard, stop, tally):
                break  # on to the next store: this one does not answer
            if answers:
                told = readers.read(store, shard, stop)
                answers = not told[UNAVAILABLE]
                tally += told
    return tally


def _sweep(store: Store, shard: int, stop: Stop, tally: Tally) -> bool:
    """Sweep one shard until nothing is found; False when the store does not answer."""
    while True:
        reaped = store.reap(shard, BATCH)
        if isinstance(reaped, Unavailable):
            tally[UNAVAILABLE] += 1
            return False
        for lapse in reaped.lapses:
            tally[lapse.what] += 1
            _log(lapse)
        if not (reaped.lapses or reaped.overdue) or stop():
            return True


def _log(lapse: Lapse) -> None:
    """Say it once: every lapse is swept by one process only."""
    said = {"task_id": lapse.id, "fingerprint": lapse.ref.fingerprint, "lock": lapse.name}
    if lapse.what == "lost":
        logger.warning(
            "job %s of lock %s was lost: it ran in %s, which renews its lease no more",
            lapse.id,
            lapse.name,
            lapse.by or "an unknown process",
            extra={"action": "lost", **said},
        )
    else:
        logger.info(
            "job %s no longer holds lock %s: %s",
            lapse.id,
            lapse.name,
            "nobody confirmed that its message exists" if lapse.what == "abandoned" else "its time is over",
            extra={"action": "lapsed", **said},
        )
