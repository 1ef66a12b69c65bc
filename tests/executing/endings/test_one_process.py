"""Many bodies in one process: each knows its own lock, leases are renewed, what they send is confirmed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dispatching.looking import holders_of
from tests.rig.waiting import wait_for

from ..conftest import new_key
from ..tasks import LEASE, looking
from . import jobs
from .rows import GEVENT, POOLS, THREADS
from .troupe import Troupe

pytestmark = [pytest.mark.worker, pytest.mark.timeout(150)]

MANY = 20


@pytest.mark.parametrize("pool", [THREADS, GEVENT])
def test_bodies_side_by_side_know_each_their_own_lock_and_keep_it(players: Troupe, pool: str) -> None:
    """They run for more than two leases: the thread, or greenlet, that renews has its turn beside them."""
    calls = [looking.apply_async((new_key(), 2.5 * LEASE), queue=pool) for _ in range(MANY)]
    told = [call.get(timeout=60) for call in calls]
    assert [each["token"] for each in told] == [call.id for call in calls]
    assert [each["fingerprint"] for each in told] == [call.fingerprint for call in calls]
    assert len({each["fence"] for each in told}) == MANY
    assert all(each["held"] and each["held_at_end"] for each in told)


@pytest.mark.parametrize("pool", POOLS)
def test_what_a_body_dispatches_is_confirmed(players: Troupe, pool: str) -> None:
    """To a queue that nobody reads, so nobody but the body's process can say that the message exists."""
    key, nobody = new_key(), new_key("nobody")
    fingerprint = jobs.sending.apply_async((key, nobody), queue=pool).get(timeout=30)

    def states() -> list[Any]:
        return [holder.state for holder in holders_of(fingerprint, jobs.plain["early"].name)]

    wait_for(lambda: states() == ["W"], 10, what=lambda: f"a confirmed seat, there are {states()}")
