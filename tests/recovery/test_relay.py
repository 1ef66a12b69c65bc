"""The relay: what was committed and has not left, leaves once, in order (case U30)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_jobdedup.dispatching.broker import breaker_of
from django_jobdedup.exceptions import JobDead
from django_jobdedup.models import JobIntent
from django_jobdedup.recovery import relay as module
from django_jobdedup.recovery.duty import Tally, never
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.recovery.relay import BackOff, back_off, relay
from testproject.celery import app
from tests.dispatching.durable.conftest import Base
from tests.jobs import tasks
from tests.rig.engines import Engine
from tests.rig.environment import Environment
from tests.rig.monitor import Monitor
from tests.rig.waiting import wait_for

from . import command
from .outage import REFUSED, broker_at


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """A broker of which nobody knows anything bad."""
    back_off.over()
    yield
    back_off.over()


@pytest.fixture
def base(engine: Engine, celery_env: Environment, settings: Any, redis_client: redis.Redis) -> Base:
    """A database with a store in it."""
    settings.JOBDEDUP_STORES = engine.stores
    return Base(engine, celery_env, redis_client)


@pytest.fixture
def quick(sqlite_engine: Engine, celery_env: Environment, settings: Any, redis_client: redis.Redis) -> Base:
    """The same on SQLite alone, for what no engine changes."""
    settings.JOBDEDUP_STORES = sqlite_engine.stores
    return Base(sqlite_engine, celery_env, redis_client)


@contextmanager
def broker_down() -> Iterator[None]:
    """Nobody who dispatches reaches the broker."""
    with broker_at(app, REFUSED):
        yield
    breaker_of(app).worked()


def left_behind(base: Base, *keys: str, task: Any = tasks.until_executed, **options: Any) -> list[str]:
    """Make calls, half of them in a transaction, whose sender does not publish; give their ids."""
    with broker_down():
        half = len(keys) // 2
        with base.atomic():
            ids = [task.apply_async((key,), **options).id for key in keys[:half]]
        ids += [task.apply_async((key,), **options).id for key in keys[half:]]
    assert base.sent() == []
    make_due(base)
    return ids


def make_due(base: Base) -> None:
    """Let the time pass after which anybody may publish what waits."""
    rows = JobIntent.objects.using(base.using).filter(state="pending")
    rows.filter(seat="").update(publish_at=1)
    rows.exclude(seat="").update(publish_at=1, until=1, attention=1)


def test_what_was_left_behind_is_published_under_its_id(base: Base) -> None:
    ids = left_behind(base, "a", "b", "c", "d")

    assert relay(never) == {"published": 4}
    assert base.sent() == ids
    assert base.states() == ["published"] * 4
    assert relay(never) == {}


def test_the_clean_up_leaves_an_unsent_row_alone(quick: Base) -> None:
    """Case U13: its message is in no queue and in no worker's hands, and will come however old the row is."""
    with broker_down():
        with quick.atomic():
            ids = [tasks.until_executed.delay("a").id]
        ids.append(tasks.until_executed.delay("b").id)
    JobIntent.objects.using(quick.using).update(created_at=1, since=1)
    told = reap(never)
    assert (told["freed"], told["lost"], told["lapsed"]) == (0, 0, 0)
    assert [row.token for row in quick.rows()] == ids
    make_due(quick)
    relay(never)
    assert quick.sent() == ids


def test_what_is_not_due_is_left_to_its_sender(base: Base) -> None:
    """He has committed and is about to publish."""
    with base.atomic():
        tasks.until_executed.delay("a")
        connections[base.using].run_on_commit.clear()

    assert relay(never) == {}
    make_due(base)
    assert relay(never) == {"published": 1}


def test_a_duplicate_is_settled_by_the_one_before_it(base: Base) -> None:
    with broker_down():
        with base.atomic():
            first = tasks.until_executed.delay("a")
        with base.atomic():
            second = tasks.until_executed.delay("a")
    assert second.id != first.id or second.duplicate
    make_due(base)
    relay(never)

    assert base.sent() == [first.id]
    assert {row.token: row.state for row in base.rows()}[first.id] == "published"


def test_the_order_of_one_key_is_kept_over_batches(quick: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 7)
    ids = left_behind(quick, *["a"] * 30, task=tasks.while_executing)

    assert relay(never) == {"published": 30}
    assert quick.sent() == ids


def test_two_relays_at_once_publish_each_row_once(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 10)
    ids = left_behind(base, *(f"k{number}" for number in range(150)))
    tallies = at_once(base, 3)

    assert sum(tally["published"] for tally in tallies) == 150
    assert sorted(base.sent()) == sorted(ids)
    assert base.states() == ["published"] * 150


def at_once(base: Base, number: int) -> list[Tally]:
    """Relay in that many threads until nothing is due."""
    tallies: list[Tally] = []

    def work() -> None:
        try:
            tallies.append(relay(never))
        finally:
            connections[base.using].close()

    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tallies) == number
    return tallies


def test_relays_at_once_keep_the_order_of_a_key(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 3)
    ids = left_behind(base, *(["a"] * 20 + ["b"] * 20), task=tasks.while_executing)
    while relay_all := at_once(base, 3):
        if not sum(tally["published"] for tally in relay_all):
            break

    sent = base.sent()
    assert sorted(sent) == sorted(ids)
    for mine in (ids[:20], ids[20:]):
        assert [id for id in sent if id in mine] == mine


def test_several_processes_share_the_work(base: Base) -> None:
    ids = left_behind(base, *(f"k{number}" for number in range(300)))
    world = base.world.having(settings=base.engine.settings_as_default)
    started = [command.start(world, "maintain", "--only", "relay", "--json") for _ in range(3)]
    outputs = [process.communicate(timeout=60) for process in started]

    assert [process.returncode for process in started] == [0, 0, 0], outputs
    assert sum(command.lines(out)[0].get("published", 0) for out, _ in outputs) == 300
    assert sorted(base.sent()) == sorted(ids)


def test_the_command_subscribes_to_no_result(quick: Base, monitor: Monitor) -> None:
    left_behind(quick, "a", "b")
    with monitor:
        call_command("jobdedup", "maintain", "--only", "relay", stdout=StringIO())

    assert len(monitor.commands("LPUSH")) == 2
    assert monitor.commands("SUBSCRIBE", "UNSUBSCRIBE") == []


# A broker that is down ------------------------------------------------------------------------------


def test_while_the_mode_is_off_what_was_published_lapses_and_the_rest_goes_out(
    base: Base, settings: Any
) -> None:
    """Workers ignore the locks then: nobody says that a job has run, so it would run once each TTL."""
    settings.JOBDEDUP_CONFIRM_WITHIN = 0.2
    first = tasks.until_executed.apply_async(("a",), unique={"ttl": 1})
    with base.interrupted():
        second = tasks.until_executed.delay("b")
    settings.JOBDEDUP_MODE = "off"
    done = Tally()

    def turn() -> bool:
        done.update(relay(never))
        return base.states() == ["lost", "published"]

    wait_for(turn, 20, what=lambda: f"a lapsed row: {base.states()}")
    assert done["settled"] == done["published"] == 1
    assert base.sent() == [first.id, second.id]
    settings.JOBDEDUP_MODE = "enforce"
    assert tasks.until_executed.delay("a").outcome == "accepted", "the key is free"


def test_what_calls_have_joined_is_kept_while_the_mode_is_off_and_published_when_it_is_on(
    base: Base, settings: Any
) -> None:
    """The message has run with its own arguments, if it has: those of the others are in the row only."""
    settings.JOBDEDUP_CONFIRM_WITHIN = 0.2
    rerun = {"ttl": 0.5, "key": [], "on_conflict": "rerun"}
    first, second = (tasks.until_executed.apply_async((each,), unique=rerun) for each in "ab")
    assert (second.id, second.outcome) == (first.id, "rerun")
    settings.JOBDEDUP_MODE = "off"
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert relay(never) == {}
        time.sleep(0.1)
    assert base.sent() == [first.id]
    settings.JOBDEDUP_MODE = "enforce"
    wait_for(lambda: relay(never)["published"], 20, what="the job with the newest arguments")
    assert base.sent() == [first.id] * 2


@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")
def test_what_no_worker_claims_is_parked_in_the_end(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without this app runs the body each time and never says so."""
    monkeypatch.setattr("django_jobdedup.recovery.relay.COPIES", 2)
    first = tasks.until_executed.apply_async(("a",), unique={"ttl": 0.5})
    wait_for(lambda: relay(never)["dead"], 20, what="a parked row")
    assert base.sent() == [first.id] * 3
    (row,) = base.rows()
    assert (row.state, row.copies, row.seat) == ("dead", 3, "")
    assert "no worker has claimed it" in row.reason
    with pytest.raises(JobDead, match="published 3 times"):
        first.get(timeout=5)
    assert tasks.until_executed.delay("a").outcome == "accepted", "the key is free"


def test_what_was_published_goes_out_again_after_its_ttl(base: Base) -> None:
    first = tasks.until_executed.apply_async(("a",), unique={"ttl": 1})
    wait_for(lambda: relay(never)["published"], 20, what="the overdue row")
    assert base.sent() == [first.id] * 2


def test_while_the_broker_is_down_no_row_is_blamed(quick: Base) -> None:
    ids = left_behind(quick, "a", "b")
    with broker_down():
        assert relay(never) == {"unavailable": 1}
        assert back_off
        make_due(quick)
        assert relay(never) == {"unavailable": 1}
    assert [row.attempts for row in quick.rows()] == [0, 0]

    back_off.over()
    make_due(quick)
    assert relay(never) == {"published": 2}
    assert quick.sent() == ids


def test_a_relay_that_backs_off_takes_no_row(quick: Base) -> None:
    left_behind(quick, "a")
    back_off.down()
    relay(never)

    assert [row.publish_at for row in quick.rows()] == [1]


def test_a_broker_that_is_still_down_costs_no_row_its_turn(
    quick: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again after the pause: before anything is taken."""
    left_behind(quick, "a")
    back_off.down()
    monkeypatch.setattr(back_off, "_until", 0.0)
    with broker_down():
        assert relay(never) == {"unavailable": 1}
    assert [row.publish_at for row in quick.rows()] == [1]
    monkeypatch.setattr(back_off, "_until", 0.0)
    assert relay(never) == {"published": 1}


@pytest.mark.parametrize(
    ("setting", "value"), [("JOBDEDUP_MIDDLEWARE", ["no.such.Layer"]), ("JOBDEDUP_MODE", "nonsense")]
)
def test_wrong_settings_are_not_the_fault_of_a_row(quick: Base, setting: str, value: object) -> None:
    """Tried five times under them it would be parked as dead."""
    left_behind(quick, "a")
    with override_settings(**{setting: value}), pytest.raises(ImproperlyConfigured, match=setting):
        relay(never)
    assert [(row.attempts, row.publish_at) for row in quick.rows()] == [(0, 1)]


def test_the_pause_doubles_up_to_eight_seconds() -> None:
    now = [0.0]
    pauses = BackOff(clock=lambda: now[0])
    assert not pauses
    waited = []
    for _ in range(5):
        pauses.down()
        start = now[0]
        while pauses:
            now[0] += 0.5
        waited.append(now[0] - start)
    assert waited == [1, 2, 4, 8, 8]
    pauses.over()
    assert not pauses
    pauses.down()
    assert pauses
    now[0] += 1
    assert not pauses


# A row that cannot be published ---------------------------------------------------------------------


def test_a_poisonous_row_holds_up_no_other_and_is_parked(
    base: Base, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids = left_behind(base, "a", "b", "c", "d", "e")
    poisoned = JobIntent.objects.using(base.using).get(token=ids[2])
    JobIntent.objects.using(base.using).filter(pk=poisoned.pk).update(call=b"no call at all")
    tries = []
    for _ in range(6):
        tries.append(relay(never))
        make_due(base)

    assert tries[0] == {"published": 4, "failed": 1}
    assert tries[1:] == [{"failed": 1}] * 3 + [{"failed": 1, "dead": 1}, {}]
    assert base.sent() == [id for id in ids if id != ids[2]]
    poisoned.refresh_from_db()
    assert (poisoned.state, poisoned.attempts, poisoned.wait_key) == ("dead", 5, None)
    assert "StoredCallError" in poisoned.reason
    (said,) = [record for record in caplog.records if getattr(record, "action", "") == "dead"]
    assert said.levelname == "ERROR"
    assert not tasks.until_executed.delay("c").duplicate, "the key is free"


def test_a_row_that_failed_comes_again_after_longer_and_longer_pauses(
    quick: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(quick, "a")
    JobIntent.objects.using(quick.using).update(call=b"no call at all")
    store, pauses = quick.store, []
    missed = store.missed
    monkeypatch.setattr(
        store,
        "missed",
        lambda ref, id, reason, retry_in: pauses.append(retry_in) or missed(ref, id, reason, 0),
    )
    relay(never)

    assert pauses == [5, 10, 20, 40, 80]
