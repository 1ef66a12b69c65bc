"""Middleware of the user's own: in order, free to drop, replace and add, errors passed outward."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_jobdedup.conf import DEFAULT_MIDDLEWARE
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.counting import CountingMiddleware
from django_jobdedup.middleware.locking import LockingMiddleware
from tests.dispatching import layers
from tests.dispatching.looking import ids, locks, messages, state, store_calls
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.monitor import Monitor

NAME = "tests.jobs.tasks.until_executed"
HERE = layers.HERE


@pytest.fixture(autouse=True)
def world(celery_env: Environment) -> Iterator[Environment]:
    """Each test in a world of its own."""
    layers.Told.passed.clear()
    yield celery_env
    confirmer.flush()


def around(*names: str) -> dict[str, list[str]]:
    """Give the setting that has these layers outside of the locking."""
    return {"JOBDEDUP_MIDDLEWARE": [*(HERE + name for name in names), *DEFAULT_MIDDLEWARE]}


def test_the_default_counts_and_locks() -> None:
    assert [type(layer) for layer in stack.middleware()] == [CountingMiddleware, LockingMiddleware]


def test_the_first_is_outermost() -> None:
    told = [f"{HERE}Outer", *DEFAULT_MIDDLEWARE, f"{HERE}Inner"]
    with override_settings(JOBDEDUP_MIDDLEWARE=told):
        tasks.until_executed.delay("a")
        assert layers.Told.passed == ["Outer in", "Inner in", "Inner out", "Outer out"]
        layers.Told.passed.clear()
        tasks.until_executed.delay("a")
        assert layers.Told.passed == ["Outer in", "Outer out"], "a refused call goes no further in"
        layers.Told.passed.clear()
        tasks.plain.delay("a")
        assert layers.Told.passed == [], "a task without a policy passes no middleware"


@pytest.mark.parametrize("place", [around, layers.within], ids=["outside of the locking", "inside"])
def test_a_layer_may_replace_calls(world: Environment, redis_client: redis.Redis, place: object) -> None:
    assert callable(place)
    with override_settings(**place("Replaces")):
        result = tasks.until_executed.delay("a")
    (message,) = messages(redis_client, world.namespace)
    assert message["headers"]["tenant"] == "acme"
    assert message["headers"]["jobdedup"]["id"] == result.id
    assert state(result, NAME) == [(result.id, "W")]


@pytest.mark.parametrize("place", [around, layers.within], ids=["outside of the locking", "inside"])
def test_a_call_that_a_layer_drops_leaves_no_lock(
    world: Environment, redis_client: redis.Redis, place: object
) -> None:
    assert callable(place)
    with override_settings(**place("Drops")):
        result = tasks.until_executed.delay("a")
    assert result.outcome == "bypassed"
    assert ids(redis_client, world.namespace) == []
    assert locks(redis_client, world.namespace) == []
    assert tasks.until_executed.delay("a").outcome == "accepted"


@pytest.mark.parametrize("place", [around, layers.within], ids=["outside of the locking", "inside"])
def test_a_layer_may_add_calls(world: Environment, redis_client: redis.Redis, place: object) -> None:
    """Outside of the locking each added call gets a lock of its own, which is confirmed like any other."""
    assert callable(place)
    with override_settings(**place("Adds")):
        result = tasks.until_executed.delay("a")
    assert result.outcome == "accepted"
    assert ids(redis_client, world.namespace) == [result.id, f"{result.id}-more"]
    assert state(result, NAME) == [(result.id, "W")]
    if place is around:
        equal = tasks.until_executed.delay("a-more")
        assert (equal.outcome, equal.id) == ("suppressed", f"{result.id}-more")
        assert state(equal, NAME) == [(f"{result.id}-more", "W")]


def test_an_error_of_a_layer_passes_outward(world: Environment, redis_client: redis.Redis) -> None:
    with override_settings(**around("Outer", "TurnsDown")), pytest.raises(PermissionError, match="Sunday"):
        tasks.until_executed.delay("a")
    assert layers.Told.passed == ["Outer in"]
    assert ids(redis_client, world.namespace) == []
    assert locks(redis_client, world.namespace) == []


@pytest.mark.parametrize("place", [around, layers.within], ids=["outside of the locking", "inside"])
def test_a_layer_that_loses_answers_is_named(
    world: Environment, redis_client: redis.Redis, place: object
) -> None:
    assert callable(place)
    with (
        override_settings(**place("Forgets")),
        pytest.raises(ImproperlyConfigured, match=r"layers\.Forgets\.dispatch\(\) answered 0 of 1 calls"),
    ):
        tasks.until_executed.delay("a")


def test_an_empty_list_is_a_no_op(world: Environment, redis_client: redis.Redis, monitor: Monitor) -> None:
    tasks.until_executed.delay("warm")
    confirmer.flush()
    with override_settings(JOBDEDUP_MIDDLEWARE=[]), monitor:
        results = [tasks.until_executed.delay("a") for _ in range(2)]
        confirmer.flush()
    assert store_calls(monitor, world.namespace) == []
    assert {(result.outcome, result.duplicate) for result in results} == {("unknown", False)}
    sent = messages(redis_client, world.namespace)[1:]
    assert [message["headers"]["id"] for message in sent] == [result.id for result in results]
    assert all("jobdedup" not in message["headers"] for message in sent)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere.Layer", r"JOBDEDUP_MIDDLEWARE: cannot import 'nowhere\.Layer'"),
        (f"{HERE}Nothing", "cannot import"),
        (f"{HERE}nothing", r"'tests\.dispatching\.layers\.nothing' must subclass .*Middleware"),
        ("collections.Counter", "must subclass"),
    ],
)
def test_a_wrong_path_is_refused(world: Environment, redis_client: redis.Redis, path: str, said: str) -> None:
    with override_settings(JOBDEDUP_MIDDLEWARE=[path]), pytest.raises(ImproperlyConfigured, match=said):
        tasks.until_executed.delay("a")
    assert ids(redis_client, world.namespace) == []
