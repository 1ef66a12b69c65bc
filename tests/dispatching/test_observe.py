"""Observing: every call is published and every start runs, what would have been is counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.test import override_settings

from django_jobdedup import Unique, dispatch_many, peek
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.header import Header, Knobs
from django_jobdedup.middleware.counting import totals
from django_jobdedup.middleware.observing import knobs_beside, runs_anyway
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.results import Busy, Done, Superseded
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from .looking import ids, locks, messages

NODE = {"concurrency": 3}
NAME = "tests.jobs.tasks.until_executed"
OBSERVED = {"observe": True}


@pytest.fixture
def observing() -> Iterator[None]:
    """This process observes; the workers of the module enforce."""
    with override_settings(JOBDEDUP_MODE="observe"):
        yield


def counted(name: str) -> dict[str, int]:
    """Give what the store has counted beside the real lock."""
    found = stores["default"].counters()
    assert isinstance(found, dict), found
    return found.get(f"observe:{name}", {})


@pytest.mark.parametrize("how", ["mode", "policy"])
def test_every_call_is_published_and_the_duplicates_are_counted(
    world: Environment, redis_client: redis.Redis, log: Any, key: str, how: str
) -> None:
    before, here = counted(NAME).get("held", 0), totals().get((NAME, "would_suppress"), 0)
    mode = {"JOBDEDUP_MODE": "observe"} if how == "mode" else {}
    options = OBSERVED if how == "policy" else {}
    with override_settings(**mode):
        done = [tasks.until_executed.apply_async((key,), queue=key, unique=options) for _ in range(3)]
    assert [(str(each.outcome), each.duplicate) for each in done] == [("observed", False)] * 3
    assert ids(redis_client, world.namespace, key) == [each.id for each in done]
    assert counted(NAME)["held"] - before == 2
    assert totals()[NAME, "would_suppress"] - here == 2
    said = [record for record in log.records if getattr(record, "action", "") == "would"]
    assert [record.task_id for record in said] == [done[1].id, done[2].id]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "suppress"),
        ({"on_conflict": "raise"}, "raise"),
        ({"on_conflict": "log"}, "suppress"),
        ({"on_conflict": "reject"}, "reject"),
        ({"on_conflict": "rerun"}, "rerun"),
        ({"on_conflict": "replace"}, "replace"),
        ({"on_conflict": "reschedule"}, "reschedule"),
    ],
)
@pytest.mark.usefixtures("observing")
def test_each_strategy_says_what_would_have_been_and_does_nothing(
    world: Environment, redis_client: redis.Redis, key: str, options: dict[str, Any], word: str
) -> None:
    before = totals().get((NAME, f"would_{word}"), 0)
    done = [
        tasks.until_executed.apply_async((key,), {"seconds": number}, queue=key, unique=options)
        for number in range(2)
    ]
    assert [str(each.outcome) for each in done] == ["observed", "observed"]
    assert totals()[NAME, f"would_{word}"] - before == 1
    sent = messages(redis_client, world.namespace, key)
    assert [each["named"] for each in sent] == [{"seconds": 0}, {"seconds": 1}], "each with its own arguments"


@pytest.mark.usefixtures("observing")
def test_no_real_lock_is_taken_and_none_is_met(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    tasks.until_executed.apply_async((key,), queue=key)
    assert peek(tasks.until_executed, key) is None
    with override_settings(JOBDEDUP_MODE="enforce"):
        enforced = tasks.until_executed.apply_async((key,), queue=key)
        assert enforced.outcome == "accepted", "turned on: nothing of the time before is in the way"
        assert tasks.until_executed.apply_async((key,), queue=key).id == enforced.id
    again = tasks.until_executed.apply_async((key,), queue=key)
    assert again.outcome == "observed"
    assert again.id != enforced.id


@pytest.mark.usefixtures("observing")
def test_calls_in_bulk_are_all_published(world: Environment, redis_client: redis.Redis, key: str) -> None:
    done = dispatch_many(tasks.until_executed.s(key).set(queue=key) for _ in range(4))
    assert [str(each.outcome) for each in done] == ["observed"] * 4
    assert len(ids(redis_client, world.namespace, key)) == 4


@pytest.mark.usefixtures("observing")
def test_a_promised_call_would_not_have_been_suppressed(world: Environment, key: str) -> None:
    before = totals().get((NAME, "would_suppress"), 0)
    for _ in range(2):
        tasks.until_executed.apply_async((key,), queue=key, link=tasks.plain.si(key))
    assert totals().get((NAME, "would_suppress"), 0) == before


@pytest.mark.usefixtures("observing")
def test_a_store_that_is_down_changes_nothing(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    from testproject.embedded_redis import free_port

    nowhere = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"redis://127.0.0.1:{free_port()}/0",
    }
    with override_settings(CACHES={"default": nowhere, "jobdedup": nowhere}):
        done = tasks.until_executed.apply_async((key,), queue=key, unique={"on_store_error": "raise"})
    assert done.outcome == "observed"
    assert ids(redis_client, world.namespace, key) == [done.id]


@pytest.mark.worker
@pytest.mark.parametrize("side", ["sender observes", "policy observes"])
def test_equal_jobs_run_side_by_side_and_nothing_stays(
    world: Environment, node: Worker, diary: Journal, redis_client: redis.Redis, key: str, side: str
) -> None:
    """The worker enforces: the message says that it is only watched."""
    before = set(locks(redis_client, world.namespace))
    mode = {"JOBDEDUP_MODE": "observe"} if side == "sender observes" else {}
    options = {"unique": OBSERVED} if side == "policy observes" else {}
    busy = counted("tests.jobs.tasks.while_executing").get("busy", 0)
    with override_settings(**mode):
        done = [tasks.while_executing.apply_async((key,), {"seconds": 1}, **options) for _ in range(3)]
    for each in done:
        each.get(timeout=15)
    runs = diary.runs(key)
    assert len(runs) == 3
    assert any(one.overlaps(other) for one in runs for other in runs if one is not other)
    assert counted("tests.jobs.tasks.while_executing")["busy"] > busy
    wait_for(lambda: set(locks(redis_client, world.namespace)) <= before, 10, what="the seats are free")


@pytest.mark.worker
def test_an_observing_worker_holds_and_frees_the_real_lock_and_puts_nothing_off(
    world: Environment, diary: Journal, redis_client: redis.Redis, tmp_path: Any, key: str
) -> None:
    """The sender enforces: its lock must be held while the job runs, and free at its end."""
    watching = world.having(settings={"JOBDEDUP_MODE": "observe"})
    options = {"queue": f"q-{key}"}
    with Worker(watching, tmp_path, concurrency=2, queues=[f"q-{key}"]).wait_until_ready():
        first = tasks.until_executed.apply_async((key,), {"seconds": 2}, **options)
        wait_for(lambda: diary.runs(key), 10, what="the start")
        assert tasks.until_executed.apply_async((key,), **options).id == first.id, "held while it runs"
        mutex = [
            tasks.while_executing.apply_async((f"{key}-m",), {"seconds": 1}, **options) for _ in range(2)
        ]
        for each in [first, *mutex]:
            each.get(timeout=20)
        wait_for(lambda: peek(tasks.until_executed, key) is None, 5, what="free at its end")
        wait_for(lambda: peek(tasks.while_executing, f"{key}-m") is None, 5, what="the mutex is free")


@pytest.mark.worker
@pytest.mark.usefixtures("observing")
def test_a_retry_of_an_observed_job_stays_observed(
    world: Environment, node: Worker, diary: Journal, redis_client: redis.Redis, key: str
) -> None:
    from . import jobs

    before = set(locks(redis_client, world.namespace))
    first, second = (jobs.traced.delay(key) for _ in range(2))
    assert [first.get(timeout=15), second.get(timeout=15)] == [1, 1]
    assert len(diary.runs(key)) == 4
    confirmer.flush()
    wait_for(lambda: set(locks(redis_client, world.namespace)) <= before, 10, what="the seats are free")


def test_an_observed_message_brings_nothing_that_could_stop_it() -> None:
    asked = Knobs(name="a", on_store_error="raise", max_starts=2, on_waiting="merge")
    knobs = knobs_beside(asked)
    assert (knobs.name, knobs.observe) == ("observe:a", True)
    assert (knobs.on_store_error, knobs.max_starts, knobs.on_waiting) == ("proceed", 0, "keep")


@pytest.mark.usefixtures("observing")
def test_a_copy_of_a_job_that_has_run_does_not_run_in_an_observing_worker() -> None:
    """That was decided where it is enforced; a shut gate only would have been in the way."""
    enforced, watched = (
        Header("id", 3, (("0" * 64, Knobs(name="a", observe=observe)),)) for observe in (False, True)
    )
    for answer in (Done(), Superseded("other")):
        assert not runs_anyway(enforced, answer)
        assert runs_anyway(watched, answer)
    assert runs_anyway(enforced, Busy(False, 1.0, "other"))


def test_the_policy_says_that_it_observes() -> None:
    assert Unique(observe=True).observe is True
    assert Unique(observe=True).to_json() == {"observe": True}
