"""Several policies on one task are of a later version: refused where they are declared or arrive."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from django_jobdedup import PolicyError, Unique
from django_jobdedup.header import FORMAT, HEADER, Header, is_newer
from django_jobdedup.policies.resolve import refuse_unbuilt, resolve
from testproject.celery import app
from tests.dispatching.looking import ids, locks
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.worker import Worker

SEVERAL = "several policies on one task are not built yet"


@pytest.mark.parametrize("several", [[Unique(), Unique("while_executing")], (True, {"ttl": 10})])
def test_several_policies_are_refused_where_they_are_declared(several: Any) -> None:
    for said in ({"declared": several}, {"declared": None, "tasks": {"a.b": {"unique": several}}}):
        with pytest.raises(PolicyError, match=SEVERAL):
            resolve("a.b", said["declared"], tasks=said.get("tasks", {}), defaults={})


def test_several_policies_are_refused_at_the_call(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    with pytest.raises(PolicyError, match=SEVERAL):
        tasks.until_executed.apply_async((key,), queue=key, unique=[Unique(), Unique()])
    assert ids(redis_client, world.namespace, key) == []


@pytest.mark.parametrize("other", ["debounce", "throttle"])
def test_a_second_policy_of_another_kind_is_refused(world: Environment, key: str, other: str) -> None:
    with pytest.raises(PolicyError, match=f"{other}= is not built yet; until then the nearest is"):
        refuse_unbuilt("a.b", None, {"unique": Unique(), other: {"key": "key"}})
    with pytest.raises(PolicyError, match=f"{other}= is not built yet"):
        tasks.until_executed.apply_async((key,), queue=key, **{other: {"key": "key"}})


def test_a_header_with_several_locks_is_of_a_later_version() -> None:
    lock = ["0" * 64, {"b": "reports"}]
    wire = {"v": FORMAT, "id": "x", "s": 3, "k": [lock, lock]}
    assert is_newer(wire)
    assert Header.decode(wire) is None
    assert not is_newer({**wire, "k": [lock]})


@pytest.mark.worker
def test_a_message_with_several_locks_runs_without_one_and_says_so(
    world: Environment, redis_client: redis.Redis, tmp_path: Any, key: str
) -> None:
    before = set(locks(redis_client, world.namespace))
    lock = ["0" * 64, {"b": "reports"}]
    header = {"v": FORMAT, "id": f"mine-{key}", "s": 3, "k": [lock, ["1" * 64, {"b": "reports"}]]}
    with Worker(world, tmp_path, queues=[key]).wait_until_ready() as node:
        options = {"queue": key, "task_id": f"mine-{key}", "headers": {HEADER: header}}
        assert app.send_task(tasks.until_executed.name, (key,), **options).get(timeout=15) == key
        assert set(locks(redis_client, world.namespace)) <= before
        assert "locked by a later version" in node.log
