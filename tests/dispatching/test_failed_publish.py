"""A call that cannot be published leaves no lock; one that was perhaps published runs once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.test import override_settings
from kombu import Connection
from kombu.exceptions import EncodeError, OperationalError

from django_jobdedup import FingerprintError
from django_jobdedup.dispatching import hook
from testproject.celery import app
from testproject.embedded_redis import free_port
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import jobs, layers
from .looking import holders_of, ids, locks, state

NAME = "tests.jobs.tasks.until_executed"


@pytest.fixture(autouse=True)
def plan() -> Iterator[type[layers.Plan]]:
    """The layers start anew."""
    layers.Plan.asked, layers.Plan.meanwhile = 0, None
    yield layers.Plan
    layers.Plan.asked, layers.Plan.meanwhile = 0, None


@pytest.fixture
def nothing_locked(world: Environment, redis_client: redis.Redis) -> Iterator[None]:
    """The test leaves no lock that was not there before."""
    before = set(locks(redis_client, world.namespace))
    yield
    assert set(locks(redis_client, world.namespace)) <= before


@dataclass(frozen=True)
class Point:
    """Has a canonical form, but no form in JSON."""

    x: int


class Formless:
    """Has no canonical form."""


@pytest.mark.usefixtures("nothing_locked")
def test_a_broker_that_refuses_is_an_error_and_leaves_no_lock(world: Environment, key: str) -> None:
    impatient = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
    nowhere = Connection(f"redis://127.0.0.1:{free_port()}/0", transport_options=impatient)
    with nowhere, pytest.raises(OperationalError) as caught:
        jobs.noticing.apply_async((key,), queue=key, connection=nowhere, retry=False)
    assert getattr(caught.value, "__notes__", []) == [], "nobody was refused meanwhile"


def test_a_publish_that_fails_once_is_tried_again_under_the_same_id(
    world: Environment, redis_client: redis.Redis, key: str, plan: type[layers.Plan]
) -> None:
    with override_settings(**layers.within("FailsOnce")):
        result = jobs.noticing.apply_async((key,), queue=key)
    assert plan.asked == 2
    assert result.outcome == "accepted"
    assert ids(redis_client, world.namespace, key) == [result.id]
    assert state(result, jobs.noticing.name) == [(result.id, "W")]


@pytest.mark.usefixtures("nothing_locked")
def test_after_two_failures_the_error_says_how_many_were_refused_meanwhile(
    world: Environment, redis_client: redis.Redis, key: str, plan: type[layers.Plan]
) -> None:
    seen = []

    def ask() -> None:
        seen.extend(jobs.noticing.apply_async((key,), queue=key) for _ in range(3))

    plan.meanwhile = staticmethod(ask)
    with override_settings(**layers.within("FailsAlways")), pytest.raises(OperationalError) as caught:
        jobs.noticing.apply_async((key,), queue=key)
    assert [result.outcome for result in seen] == ["suppressed"] * 3
    assert plan.asked == 2
    (note,) = caught.value.__notes__
    assert note.startswith("django_jobdedup: 3 equal calls were refused")
    assert ids(redis_client, world.namespace, key) == []


@pytest.mark.usefixtures("nothing_locked")
def test_an_encoding_that_fails_is_not_tried_again(
    world: Environment, key: str, plan: type[layers.Plan]
) -> None:
    with override_settings(**layers.within("CannotEncode")), pytest.raises(EncodeError):
        jobs.noticing.apply_async((key,), queue=key)
    assert plan.asked == 1


@pytest.mark.parametrize(
    "value", [{1, 2}, Point(1), timedelta(1), [{"deep": {1}}]], ids=["set", "dataclass", "timedelta", "deep"]
)
@pytest.mark.usefixtures("nothing_locked")
def test_an_argument_that_json_refuses_gives_celerys_error(world: Environment, key: str, value: Any) -> None:
    with pytest.raises(EncodeError) as ours:
        jobs.anything.apply_async((value,), queue=key)
    hook.uninstall()
    try:
        with pytest.raises(EncodeError) as plain:
            jobs.anything.apply_async((value,), queue=key)
    finally:
        hook.install()
    assert str(ours.value) == str(plain.value)


@pytest.mark.usefixtures("nothing_locked")
def test_an_argument_without_a_form_is_named(world: Environment, redis_client: redis.Redis, key: str) -> None:
    name = re.escape(jobs.anything.name)
    with pytest.raises(FingerprintError, match=rf"^{name}: Argument value\['owner'\] is of type") as caught:
        jobs.anything.apply_async(({"owner": Formless()},), queue=key)
    assert caught.value.argument == "value['owner']"
    with pytest.raises(FingerprintError, match=rf"^{name}: Argument value is of type"):
        app.send_task(jobs.anything.name, (Formless(),), queue=key)
    assert ids(redis_client, world.namespace, key) == []


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), (("k", 1, 2), {}), (("k",), {"key": "k"}), (("k",), {"unknown": 1})],
    ids=["too few", "too many", "twice", "unknown"],
)
@pytest.mark.usefixtures("nothing_locked")
def test_arguments_that_do_not_fit_give_the_same_error_as_without_us(
    world: Environment, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as ours:
        tasks.until_executed.apply_async(args, kwargs)
    hook.uninstall()
    try:
        with pytest.raises(TypeError) as plain:
            tasks.until_executed.apply_async(args, kwargs)
    finally:
        hook.install()
    assert (type(ours.value), str(ours.value)) == (type(plain.value), str(plain.value))


@pytest.mark.parametrize(
    ("args", "kwargs"), [("abc", None), (None, "abc"), (None, [("key", "a")]), ({1}, {})]
)
@pytest.mark.usefixtures("nothing_locked")
def test_arguments_that_are_no_lists_and_dicts_are_left_to_celery(
    world: Environment, key: str, args: Any, kwargs: Any
) -> None:
    with pytest.raises(TypeError, match="must be"):
        app.send_task(NAME, args, kwargs, queue=key)


@pytest.mark.usefixtures("nothing_locked")
def test_a_layer_that_raises_leaves_no_lock(
    world: Environment, redis_client: redis.Redis, key: str, plan: type[layers.Plan]
) -> None:
    with override_settings(**layers.within("Raises")), pytest.raises(RuntimeError, match="a layer broke"):
        jobs.noticing.apply_async((key,), queue=key)
    assert ids(redis_client, world.namespace, key) == []


@pytest.mark.parametrize("way", ["bypassed", "no lock at all"])
def test_a_call_without_a_lock_is_not_sent_twice(
    world: Environment, redis_client: redis.Redis, key: str, plan: type[layers.Plan], way: str
) -> None:
    """Perhaps it went out, and nobody would notice the second copy: both would run."""
    told = {"unique": False} if way == "bypassed" else {}
    observing = {"JOBDEDUP_REQUIRE_WORKER": way != "bypassed"}
    with override_settings(**layers.within("PerhapsFailed"), **observing), pytest.raises(OperationalError):
        jobs.noticing.apply_async((key,), queue=key, **told)
    assert len(ids(redis_client, world.namespace, key)) == 1


def test_a_retry_that_cannot_be_published_keeps_the_seat_that_runs(
    world: Environment, key: str, plan: type[layers.Plan]
) -> None:
    """A seat of an earlier message is not the publish's to free."""
    first = jobs.noticing.apply_async((key,), queue=key)
    header = _header_of(first)
    with override_settings(**layers.within("FailsAlways")), pytest.raises(OperationalError):
        jobs.noticing.apply_async((key,), queue=key, task_id=first.id, headers={"jobdedup": header})
    assert [holder.id for holder in holders_of(first.fingerprint, jobs.noticing.name)] == [first.id]


def _header_of(result: Any) -> dict[str, Any]:
    from django_jobdedup.conf import conf
    from django_jobdedup.fingerprint.digest import shard_of
    from django_jobdedup.header import Header
    from django_jobdedup.policies.resolve import policy_of
    from django_jobdedup.policies.unique import Unique

    policy = policy_of(jobs.noticing.name, jobs.noticing.unique)
    assert isinstance(policy, Unique)
    knobs = policy.knobs(jobs.noticing.name)
    shard = shard_of(jobs.noticing.name, conf.SHARDS)
    return Header(result.id, shard, ((result.fingerprint, knobs),)).encode()


@pytest.mark.worker
def test_a_call_that_was_perhaps_published_runs_once(
    world: Environment, node: Worker, diary: Journal, key: str, plan: type[layers.Plan]
) -> None:
    with override_settings(**layers.within("PerhapsFailed")):
        result = tasks.until_executed.delay(key, 0.3)
    assert plan.asked == 2
    assert result.get(timeout=10) == key
    after = tasks.until_executed.delay(key)
    assert after.outcome == "accepted"
    assert after.get(timeout=10) == key
    node.wait_for_log("ignored")
    assert [run.id for run in diary.runs(key)] == [result.id, after.id]
