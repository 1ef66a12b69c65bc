"""``dispatch_many``: many calls in one round trip to the store and one to the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import chain, group
from django.db import DatabaseError
from django.test import override_settings
from kombu.exceptions import EncodeError, OperationalError

from django_jobdedup import BulkError, DuplicateDispatch, FingerprintError, PolicyError, dispatch_many
from django_jobdedup.dispatching import hook, pipeline
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.middleware import refusing
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.redis.store import RedisStore
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.monitor import Monitor
from tests.rig.worker import Worker

from . import jobs, layers
from .looking import holders, ids, locks, messages, state, store_calls

NODE = {"concurrency": 2}


@pytest.fixture
def warm(world: Environment, key: str) -> None:
    """Connections are open and scripts are loaded."""
    dispatch_many(
        each.s(f"{key}-warm").set(queue=f"{key}-warm") for each in (tasks.until_executed, tasks.plain)
    )
    confirmer.flush()


def test_calls_of_mixed_tasks_and_options_give_one_result_each_in_order(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    done = dispatch_many(
        [
            tasks.until_executed.s(key).set(queue=key),
            tasks.plain.s(key).set(queue=key),
            tasks.until_executed.s(key).set(queue=key),
            tasks.while_executing.s(key).set(queue=f"{key}-slow"),
            tasks.until_executed.s(key).set(queue=key, unique=False),
            tasks.until_executed.s(key, seconds=1).set(queue=key, unique={"key": None}),
        ]
    )
    assert [str(each.outcome) for each in done] == [
        "accepted", "unknown", "suppressed", "accepted", "bypassed", "accepted",
    ]  # fmt: skip
    assert [each.duplicate for each in done] == [False, False, True, False, False, False]
    assert done[2].id == done[0].id
    assert ids(redis_client, world.namespace, key) == [done[at].id for at in (0, 1, 4, 5)]
    assert ids(redis_client, world.namespace, f"{key}-slow") == [done[3].id]


def test_the_results_are_as_those_of_delay(world: Environment, key: str) -> None:
    (many,) = dispatch_many([tasks.until_executed.s(key).set(queue=key)])
    one = tasks.until_executed.apply_async((key,), queue=key)
    assert type(many) is type(one)
    assert (many.id, many.fingerprint) == (one.id, one.fingerprint)
    assert vars(many).keys() == vars(one).keys()
    assert state(many, tasks.until_executed.name) == [(many.id, "W")]


def test_the_message_is_that_of_delay(world: Environment, redis_client: redis.Redis, key: str) -> None:
    options = {"queue": key, "priority": 3, "expires": 60, "headers": {"mine": "1"}, "countdown": 5}
    tasks.until_executed.apply_async((key,), {"seconds": 2}, **options, unique=False)
    dispatch_many([tasks.until_executed.s(key, seconds=2).set(**options, unique=False)])
    one, many = messages(redis_client, world.namespace, f"{key}\x06\x163")
    own = {"id", "root_id", "eta", "expires", "jobdedup"}
    assert {**one["headers"], **dict.fromkeys(own)} == {**many["headers"], **dict.fromkeys(own)}
    assert [one[name] for name in ("arguments", "named", "embed")] == [
        many[name] for name in ("arguments", "named", "embed")
    ]


def test_a_thousand_calls_of_one_task_cost_the_store_one_round_trip(
    world: Environment, warm: None, monitor: Monitor, redis_client: redis.Redis, key: str
) -> None:
    with monitor:
        dispatch_many(tasks.until_executed.s(f"{key}-{number}").set(queue=key) for number in range(1000))
        asked = [call.name for call in store_calls(monitor, world.namespace)]
    confirmer.flush()
    confirms = 1000 // 200
    assert asked[0] == "EVALSHA"
    assert len(asked) <= 1 + confirms, "the confirms go out behind, in the background"
    assert len(ids(redis_client, world.namespace, key)) == 1000


def test_more_than_a_thousand_go_in_several_scripts_and_several_tasks_in_one_of_each_shard(
    world: Environment, warm: None, key: str
) -> None:
    asked: list[int] = []
    store = stores["default"]
    assert isinstance(store, RedisStore)
    line = store.line
    original = line.scripts.run_many

    def count(client: Any, verb: str, calls: Any) -> Any:
        asked.append(len(calls))
        return original(client, verb, calls)

    line.scripts.run_many = count
    try:
        dispatch_many(
            task.s(f"{key}-{number}").set(queue=key)
            for number in range(1100)
            for task in (tasks.until_executed, tasks.until_executing)
        )
    finally:
        line.scripts.run_many = original
    assert asked[0] == 4, "two shards, two scripts each, in one round trip"


@pytest.mark.skipif(not hasattr(pipeline.exceptions, "BatchPublishError"), reason="kombu before 5.7")
def test_a_thousand_messages_are_published_in_one_round_trip(
    world: Environment, warm: None, monitor: Monitor, key: str
) -> None:
    sent: list[int] = []
    from kombu.transport.redis import PublishBatch

    original = PublishBatch.flush

    def flush(self: Any) -> None:
        sent.append(self._buffered)
        original(self)

    PublishBatch.flush = flush
    try:
        dispatch_many(tasks.until_executed.s(f"{key}-{number}").set(queue=key) for number in range(1001))
    finally:
        PublishBatch.flush = original
    assert [number for number in sent if number] == [1000, 1]


def test_equal_calls_in_a_batch_are_one_question_and_one_message(
    world: Environment, warm: None, redis_client: redis.Redis, monitor: Monitor, key: str
) -> None:
    with monitor:
        done = dispatch_many(
            tasks.until_executed.s(f"{key}-{number % 3}").set(queue=key) for number in range(300)
        )
        confirmer.flush()
    assert [str(each.outcome) for each in done] == ["accepted"] * 3 + ["suppressed"] * 297
    assert [each.id for each in done] == [done[number % 3].id for number in range(300)]
    (asked, *_) = store_calls(monitor, world.namespace)
    assert len([word for word in asked.words if ":lock:" in word]) == 3
    assert len(ids(redis_client, world.namespace, key)) == 3


def test_equal_calls_whose_newest_arguments_count_are_not_folded(world: Environment, key: str) -> None:
    merge = {"on_conflict": "rerun"}
    done = dispatch_many(
        tasks.until_executed.s(key, seconds=number).set(queue=key, unique=merge) for number in range(3)
    )
    assert [str(each.outcome) for each in done] == ["accepted", "rerun", "rerun"]
    (holder,) = holders(done[0], tasks.until_executed.name)
    assert holder.merged == 2
    assert b'"seconds": 2' in (holder.args or b"")


def test_a_refused_batch_has_the_ids_of_the_holders_and_publishes_what_has_no_policy(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first = tasks.until_executed.apply_async((key,), queue=key)
    done = dispatch_many(
        [tasks.until_executed.s(key).set(queue=key)] * 2 + [tasks.plain.s(key).set(queue=key)]
    )
    assert [each.id for each in done[:2]] == [first.id] * 2
    assert ids(redis_client, world.namespace, key) == [first.id, done[2].id]
    assert holders(first, tasks.until_executed.name)[0].refused == 1, "the second is folded into the first"


def test_a_call_with_a_promised_id_is_never_dropped(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    done = dispatch_many(
        [
            tasks.until_executed.s(key).set(queue=key),
            tasks.until_executed.s(key).set(queue=key, task_id=f"mine-{key}"),
            tasks.until_executed.s(key).set(queue=key, link=tasks.plain.si(key)),
        ]
    )
    assert [str(each.outcome) for each in done] == ["accepted", "followed", "followed"]
    assert done[1].id == f"mine-{key}"
    assert len(ids(redis_client, world.namespace, key)) == 3


# Errors


@pytest.fixture
def nothing_new(world: Environment, redis_client: redis.Redis, key: str) -> Iterator[None]:
    """The test leaves no lock and no message."""
    before = set(locks(redis_client, world.namespace))
    yield
    assert set(locks(redis_client, world.namespace)) <= before
    assert ids(redis_client, world.namespace, key) == []


@pytest.mark.usefixtures("nothing_new")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: jobs.anything.s(object()), FingerprintError),
        (lambda: tasks.until_executed.s("x").set(unique={"leese": 3}), PolicyError),
        (tasks.until_executed.s, TypeError),
    ],
    ids=["no form", "no such option", "no argument"],
)
def test_a_call_that_cannot_be_decided_names_itself_before_anything_is_locked(
    world: Environment, key: str, wrong: Any, error: type[Exception]
) -> None:
    good = [tasks.until_executed.s(f"{key}-{number}").set(queue=key) for number in range(3)]
    with pytest.raises(error) as caught:
        dispatch_many([*good, tasks.plain.s(key).set(queue=key), wrong(), *good])
    (note,) = caught.value.__notes__
    assert "call number 4 (counted from 0) of dispatch_many()" in note


@pytest.mark.usefixtures("nothing_new")
@pytest.mark.parametrize("make", [chain, group], ids=["chain", "group"])
def test_a_workflow_is_no_signature_of_a_task(world: Environment, key: str, make: Any) -> None:
    one = tasks.until_executed.s(key).set(queue=key)
    with pytest.raises(TypeError, match=r"number 1 is .*its own apply_async\(\)"):
        dispatch_many([one, make(one, one.clone())])


def test_a_call_and_no_signature_is_refused(world: Environment) -> None:
    with pytest.raises(TypeError, match=r"number 0 is a task: write until_executed\.s\(\.\.\.\)\."):
        dispatch_many([tasks.until_executed])
    with pytest.raises(TypeError, match=r"a list of signatures, not one: write \[build_report\.s\(42\)\]"):
        dispatch_many(tasks.until_executed.s("a"))


def test_refusals_by_raise_come_together_after_the_others_are_queued(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    holder = tasks.until_executed.apply_async((key,), queue=key)
    calls = [f"{key}-a", key, f"{key}-b", key]
    with pytest.raises(BulkError) as caught:
        dispatch_many(
            tasks.until_executed.s(each).set(queue=key, unique={"on_conflict": "raise"}) for each in calls
        )
    error = caught.value
    assert sorted(error.errors) == [1, 3]
    assert all(isinstance(each, DuplicateDispatch) for each in error.errors.values())
    assert error.errors[3].holder_id == holder.id  # type: ignore[attr-defined]
    assert [each and str(each.outcome) for each in error.results] == ["accepted", None, "accepted", None]
    assert str(error).startswith("2 of 4 calls were not queued; number 1")
    assert len(ids(redis_client, world.namespace, key)) == 3


def test_a_message_that_cannot_be_encoded_fails_alone(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    before = len(locks(redis_client, world.namespace))
    with pytest.raises(BulkError) as caught:
        dispatch_many(
            [
                jobs.anything.s([key, 1]).set(queue=key),
                jobs.anything.s([key, {2}]).set(queue=key),
                jobs.anything.s([key, 3]).set(queue=key),
            ]
        )
    assert isinstance(caught.value.errors[1], EncodeError)
    assert list(caught.value.errors) == [1]
    assert len(ids(redis_client, world.namespace, key)) == 2
    assert len(locks(redis_client, world.namespace)) == before + 2


# A broker that fails


@pytest.fixture
def plan() -> Iterator[type[layers.Plan]]:
    """The layers start anew."""
    layers.Plan.asked, layers.Plan.meanwhile = 0, None
    yield layers.Plan
    layers.Plan.asked, layers.Plan.meanwhile = 0, None


def test_a_batch_that_fails_once_is_tried_again_as_one_under_the_same_ids(
    world: Environment, redis_client: redis.Redis, key: str, plan: type[layers.Plan]
) -> None:
    with override_settings(**layers.within("FailsOnce")):
        done = dispatch_many(tasks.until_executed.s(f"{key}-{number}").set(queue=key) for number in range(5))
    assert plan.asked == 2
    assert ids(redis_client, world.namespace, key) == [each.id for each in done]


@pytest.mark.usefixtures("nothing_new")
def test_a_batch_that_fails_twice_gives_every_seat_back_and_fails_its_equal_calls_too(
    world: Environment, key: str, plan: type[layers.Plan]
) -> None:
    with override_settings(**layers.within("FailsAlways")), pytest.raises(BulkError) as caught:
        dispatch_many(tasks.until_executed.s(f"{key}-{number % 3}").set(queue=key) for number in range(6))
    assert plan.asked == 2
    assert sorted(caught.value.errors) == list(range(6))
    assert all(isinstance(each, OperationalError) for each in caught.value.errors.values())


@pytest.mark.skipif(not hasattr(pipeline.exceptions, "BatchPublishError"), reason="kombu before 5.7")
def test_a_pipeline_that_breaks_is_tried_again_with_the_same_messages(
    world: Environment, warm: None, redis_client: redis.Redis, key: str
) -> None:
    from kombu.transport.redis import PublishBatch

    original, broken = PublishBatch.flush, []

    def flush(self: Any) -> None:
        if self._buffered and not broken:
            broken.append(self._buffered)
            self.pipeline.connection_pool.disconnect()
            self.pipeline.execute_command("QUIT")
        original(self)

    PublishBatch.flush = flush
    try:
        done = dispatch_many(
            [tasks.until_executed.s(key).set(queue=key), tasks.until_executing.s(key).set(queue=key)]
        )
    finally:
        PublishBatch.flush = original
    assert broken == [2]
    assert [str(each.outcome) for each in done] == ["accepted", "accepted"]
    # Perhaps published twice: each copy is claimed, one runs.
    assert set(ids(redis_client, world.namespace, key)) == {each.id for each in done}


def test_a_refusal_that_fails_is_an_error_of_its_own_call(
    world: Environment, redis_client: redis.Redis, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have their seats by then: without messages they would refuse what comes."""

    def bury(*args: Any) -> None:
        raise DatabaseError("the database is down")

    rejecting = tasks.until_executed.s(key).set(queue=key, unique={"on_conflict": "reject"})
    held = tasks.until_executed.apply_async((key,), queue=key)
    monkeypatch.setattr(refusing, "bury", bury)
    with pytest.raises(BulkError, match="the database is down") as caught:
        dispatch_many(
            [
                tasks.until_executed.s(f"{key}-other").set(queue=key),
                rejecting,
                tasks.plain.s(key).set(queue=key),
            ]
        )
    first, none, last = caught.value.results
    assert none is None
    assert isinstance(caught.value.errors[1], DatabaseError)
    assert (str(first.outcome), str(last.outcome)) == ("accepted", "unknown")
    assert ids(redis_client, world.namespace, key) == [held.id, first.id, last.id]


# Off, eager, in a worker


def test_without_the_hook_calls_go_as_celery_sends_them(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    hook.uninstall()
    try:
        done = dispatch_many(tasks.plain.s(key).set(queue=key) for _ in range(2))
    finally:
        hook.install()
    assert ids(redis_client, world.namespace, key) == [each.id for each in done]


@override_settings(JOBDEDUP_MODE="off")
def test_in_off_mode_nothing_is_folded(world: Environment, redis_client: redis.Redis, key: str) -> None:
    done = dispatch_many(tasks.until_executed.s(key).set(queue=key) for _ in range(2))
    assert [str(each.outcome) for each in done] == ["bypassed", "bypassed"]
    assert ids(redis_client, world.namespace, key) == [each.id for each in done]


@override_settings(JOBDEDUP_MODE="off")
def test_in_off_mode_the_others_go_out_when_one_cannot(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    some = [tasks.until_executed.s(key), tasks.plain.s(object()), tasks.plain.s(key)]
    with pytest.raises(BulkError) as caught:
        dispatch_many(each.set(queue=key) for each in some)
    first, none, last = caught.value.results
    assert none is None
    assert isinstance(caught.value.errors[1], EncodeError)
    assert [str(first.outcome), str(last.outcome)] == ["bypassed", "bypassed"]
    assert ids(redis_client, world.namespace, key) == [first.id, last.id]


@override_settings(JOBDEDUP_MODE="off")
def test_in_off_mode_nothing_goes_out_when_the_arguments_of_one_do_not_fit(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    with pytest.raises(TypeError, match="missing"):
        dispatch_many(each.set(queue=key) for each in (tasks.plain.s(key), tasks.until_executed.s()))
    assert ids(redis_client, world.namespace, key) == []


def test_an_override_of_apply_async_keeps_its_say(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    class Tracing(app.Task):  # type: ignore[name-defined, misc]
        abstract = True

        def apply_async(self, *args: Any, **options: Any) -> Any:
            options["headers"] = {**(options.get("headers") or {}), "trace": key}
            return super().apply_async(*args, **options)

    def echo(value: int) -> int:
        return value

    task = app.task(base=Tracing, name=f"tests.{key}", unique=True)(echo)
    try:
        done = dispatch_many(task.s(number).set(queue=key) for number in (1, 1, 2))
    finally:
        app.tasks.pop(task.name)
    assert [str(each.outcome) for each in done] == ["accepted", "suppressed", "accepted"]
    assert [each["headers"]["trace"] for each in messages(redis_client, world.namespace, key)] == [key] * 2


@pytest.mark.worker
def test_a_batch_runs_once_each_and_nothing_stays(
    world: Environment, node: Worker, diary: Journal, redis_client: redis.Redis, key: str
) -> None:
    done = dispatch_many(tasks.until_executed.s(f"{key}-{number % 20}") for number in range(60))
    for each in done:
        each.get(timeout=20)
    for number in range(20):
        assert len(diary.runs(f"{key}-{number}")) == 1
    assert not [each for each in done if holders(each, tasks.until_executed.name)]
