"""Freeing: a seat goes when its message is nowhere, and only then (cases U11, U13 and U40)."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.result import AsyncResult

from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.exceptions import JobLost
from django_jobdedup.recovery import freeing, reaper
from django_jobdedup.recovery.duty import never
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.results import Reaped, Unavailable
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment, forget_connections

from .conftest import REF, Locks

LOOK = 300.0
"""Age at which a seat without news is looked at for the first time."""

pytestmark = [
    pytest.mark.usefixtures("celery_env"),
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pops messages here, so the second look may come soon."""
    monkeypatch.setattr(reaper, "free", partial(freeing.free, patience=0.05))
    freeing._say_unproven.cache_clear()


def call(key: str, task: Any = tasks.until_executed) -> Any:
    """Make a call whose message is known to exist."""
    result = task.delay(key)
    confirmer.flush()
    return result


def purge(queue: str = "celery") -> None:
    """Lose every message of a queue."""
    with app.connection_for_write() as connection:
        connection.default_channel.queue_purge(queue)


def test_a_message_that_waits_keeps_its_lock(memory: MemoryStore) -> None:
    held = call("k")
    memory.clock.advance(LOOK)

    assert reap(never) == {}
    assert call("k").id == held.id


def test_a_lock_whose_message_has_vanished_is_freed_and_its_waiters_are_told(
    memory: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    lost = call("k")
    memory.clock.advance(LOOK)
    purge()

    assert reap(never) == {"freed": 1}
    assert f"job {lost.id} no longer holds lock tests.jobs.tasks.until_executed" in caplog.text
    with pytest.raises(JobLost, match="in no queue and in no worker's hands"):
        lost.get(timeout=10)
    assert not call("k").duplicate


def test_an_observed_job_that_has_vanished_leaves_its_result_to_celery(memory: MemoryStore) -> None:
    """Nothing of ours is seen by whoever waits for it: as it would be without the app."""
    lost = tasks.until_executed.apply_async(("k",), unique={"observe": True})
    confirmer.flush()
    memory.clock.advance(LOOK)
    purge()

    assert reap(never) == {"freed": 1}
    assert lost.state == "PENDING"


def test_where_messages_are_written_to_another_broker_none_is_surely_gone(
    memory: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the two (a shovel, a federation) a message may be where nobody can look."""
    call("k")
    memory.clock.advance(LOOK)
    purge()
    app.conf.broker_write_url = "redis://127.0.0.1:1/0"
    try:
        assert reap(never) == {"unproven": 1}
    finally:
        app.conf.broker_write_url = None
    assert "broker_write_url is not broker_read_url" in caplog.text
    assert call("k").duplicate


@pytest.mark.parametrize("form", ["group", "chain", "chord"])
def test_who_waits_for_a_workflow_with_a_lost_member_is_told(memory: MemoryStore, form: str) -> None:
    """Case U40: a purge takes a member, and nobody hangs for it."""
    member, other = tasks.until_executed.si("k"), tasks.plain.si("other")
    workflow = {
        "group": group(member, other), "chain": chain(member, other), "chord": chord([member, member], other),
    }[form]  # fmt: skip
    waited = workflow.apply_async()
    confirmer.flush()
    memory.clock.advance(LOOK)
    purge()

    assert reap(never) == {"freed": 1}
    with pytest.raises(JobLost, match="in no queue and in no worker's hands"):
        waited.get(timeout=10)


def test_a_young_lock_is_left_alone(memory: MemoryStore) -> None:
    call("k")
    memory.clock.advance(LOOK - 1)
    purge()

    assert reap(never) == {}


def test_only_what_is_missing_is_freed(memory: MemoryStore) -> None:
    call("lost")
    purge()
    kept = [call(str(number)).id for number in range(5)]
    memory.clock.advance(LOOK)

    assert reap(never) == {"freed": 1}
    assert [call(str(number)).id for number in range(5)] == kept


def test_what_is_too_much_for_one_reading_is_freed_after_several(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freeing, "MOST", 2)
    for number in range(5):
        call(str(number))
    memory.clock.advance(LOOK)
    purge()

    assert reap(never) == {"freed": 5}


def test_a_store_and_a_backend_that_go_away_meanwhile_stop_nothing(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The seats that could be freed are; who waits for their results is not told, which is said."""
    call("k")
    call("l")
    memory.clock.advance(LOOK)
    purge()
    remove, answers = memory.remove, iter([Unavailable("down")])
    monkeypatch.setattr(memory, "remove", lambda *seat: next(answers, None) or remove(*seat))
    with monkeypatch.context() as broken:
        broken.setattr(freeing, "store_loss", unreachable)
        assert reap(never) == {"unavailable": 1, "freed": 1}
    assert "internal error in recovery.freeing" in caplog.text
    memory.clock.advance(LOOK)
    assert reap(never) == {"freed": 1}


def unreachable(*_: Any) -> bool:
    """Be a result backend that does not answer."""
    raise OSError("down")


def test_what_is_told_to_stop_looks_for_no_message(memory: MemoryStore) -> None:
    call("k")
    memory.clock.advance(LOOK)
    purge()
    swept = iter([False] * stores["default"].shards)

    assert reap(lambda: next(swept, True)) == {}
    assert call("k").duplicate


def test_a_job_that_a_worker_holds_before_a_shut_gate_keeps_its_seat(
    memory: MemoryStore, locks: Locks
) -> None:
    """Under ``Wait`` with early ack: its message is in no queue and in no worker's hands."""
    locks.run("runs", lease=2 * LOOK)
    locks.wait("held", counts="", ttl=3600)
    memory.clock.advance(LOOK)

    assert reap(never) == {}
    assert [holder.id for holder in memory.inspect(REF).holders] == ["runs", "held"]  # type: ignore[union-attr]
    assert AsyncResult("held", app=app).state == "PENDING"


def test_a_seat_that_moves_after_the_proof_survives(memory: MemoryStore, locks: Locks) -> None:
    """The message was early-acked, and the claim came after the looks."""
    locks.wait("a", ttl=3600)
    memory.clock.advance(LOOK)
    reaped = memory.reap(REF.shard)
    assert isinstance(reaped, Reaped)
    locks.run("a")

    assert freeing.free([(memory, doubt) for doubt in reaped.doubtful], patience=0.05) == {}
    assert not memory.inspect(REF).holders[0].until  # type: ignore[union-attr]


def test_a_key_that_was_taken_anew_survives(memory: MemoryStore, locks: Locks) -> None:
    locks.wait("a", ttl=3600)
    memory.clock.advance(LOOK)
    reaped = memory.reap(REF.shard)
    assert isinstance(reaped, Reaped)
    memory.remove(REF, reaped.doubtful[0].holder)
    memory.clock.advance(120)
    locks.wait("b", ttl=3600)

    assert freeing.free([(memory, doubt) for doubt in reaped.doubtful], patience=0.05) == {}
    assert [holder.id for holder in memory.inspect(REF).holders] == ["b"]  # type: ignore[union-attr]


def test_while_the_broker_cannot_be_read_nothing_is_freed(
    memory: MemoryStore, celery_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    call("k")
    memory.clock.advance(LOOK)
    purge()
    before = app.conf.broker_url
    app.conf.update(broker_url="redis://127.0.0.1:1/0", broker_read_url="redis://127.0.0.1:1/0")
    forget_connections(app)
    try:
        with caplog.at_level(logging.WARNING):
            assert reap(never) == {"unproven": 1}
            memory.clock.advance(LOOK)
            assert reap(never) == {"unproven": 1}
    finally:
        app.conf.update(broker_url=before, broker_read_url=None)
        forget_connections(app)

    said = [record for record in caplog.records if getattr(record, "action", "") == "unproven"]
    assert len(said) == 1, "the same reason is said once"
    memory.clock.advance(2 * LOOK)
    assert reap(never) == {"freed": 1}


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "memory://"])
def test_with_a_second_broker_both_must_be_read(memory: MemoryStore, url: str) -> None:
    other = Celery("other", set_as_current=False, loader="app", broker=url)
    call("k")
    memory.clock.advance(LOOK)
    purge()

    assert reap(never) == {"unproven": 1}
    other.close()


def test_an_app_that_celery_makes_up_has_no_broker_to_be_read(memory: MemoryStore) -> None:
    """As it does where code asks for an app before there is one."""
    made_up = Celery("made up", set_as_current=False, loader="default", broker="redis://127.0.0.1:1/0")
    call("k")
    memory.clock.advance(LOOK)
    purge()

    assert reap(never) == {"freed": 1}
    made_up.close()


def test_a_message_in_the_second_broker_keeps_its_lock(
    memory: MemoryStore, celery_env: Environment, redis_server: Any
) -> None:
    prefix = {"global_keyprefix": f"{celery_env.namespace}-other:"}
    other = Celery("other", set_as_current=False, loader="app", broker=redis_server.url)
    other.conf.broker_transport_options = prefix
    other.finalize()
    held = call("k", other.tasks["tests.jobs.tasks.until_executed"])
    assert call("k").id == held.id
    memory.clock.advance(LOOK)

    assert reap(never) == {}
    other.close()
