"""What travels with a message, and what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from django_jobdedup.conf import conf
from django_jobdedup.fingerprint.digest import shard_of
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.monitor import Monitor
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import jobs
from .looking import holders, messages, state

NODE = {"concurrency": 2}


def the_message(client: redis.Redis, world: Environment, queue: str) -> dict[str, Any]:
    """Give the only message of a queue."""
    (message,) = messages(client, world.namespace, queue)
    return message


def test_the_header_lies_flat_in_the_message_in_its_golden_form(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    result = jobs.noticing.apply_async((key,), queue=key)
    headers = the_message(redis_client, world, key)["headers"]
    (holder,) = holders(result, jobs.noticing.name)
    assert headers["jobdedup"] == {
        "v": 1,
        "id": result.id,
        "s": shard_of(jobs.noticing.name, conf.SHARDS),
        "k": [[result.fingerprint, {"b": jobs.noticing.name, "t": 3600.0, "e": 3.0}]],
        "at": pytest.approx(holder.since, abs=0.01),
    }
    assert [name for name in headers if name.startswith("jobdedup")] == ["jobdedup"]
    assert headers["id"] == result.id


def test_headers_of_the_callers_own_stay(world: Environment, redis_client: redis.Redis, key: str) -> None:
    given = {"traceparent": "00-1"}
    jobs.noticing.apply_async((key,), queue=key, headers=given)
    headers = the_message(redis_client, world, key)["headers"]
    assert headers["traceparent"] == "00-1"
    assert headers["jobdedup"]["v"] == 1
    assert given == {"traceparent": "00-1"}, "the caller's dict is not written to"


def test_a_bypassed_call_says_so_in_its_header(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    result = jobs.noticing.apply_async((key,), queue=key, unique=False)
    assert the_message(redis_client, world, key)["headers"]["jobdedup"] == {"v": 1, "id": result.id}


def test_a_nonce_is_never_published(world: Environment, redis_client: redis.Redis, key: str) -> None:
    """Somebody who copies all headers of a request must not copy the nonce of its delivery."""
    jobs.noticing.apply_async((key,), queue=key, headers={"jobdedup_nonce": "stolen"})
    assert "jobdedup_nonce" not in the_message(redis_client, world, key)["headers"]


def test_a_foreign_header_of_another_id_is_not_believed(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first = jobs.noticing.apply_async((key,), queue=key)
    copied = messages(redis_client, world.namespace, key)[0]["headers"]["jobdedup"]
    second = jobs.noticing.apply_async((f"{key}-2",), queue=key, headers={"jobdedup": copied})
    assert (first.outcome, second.outcome) == ("accepted", "accepted")
    assert second.fingerprint != first.fingerprint
    own = messages(redis_client, world.namespace, key)[1]["headers"]["jobdedup"]
    assert own["id"] == second.id
    assert own["k"][0][0] == second.fingerprint


@pytest.mark.worker
def test_children_do_not_inherit_the_header(
    world: Environment, node: Worker, redis_client: redis.Redis, key: str
) -> None:
    """The parent has a lock; a child without a policy has no header, one with a policy has its own."""
    asked = jobs.asking.apply_async(
        (key, tasks.plain.name, 1), {"options": {"queue": f"{key}-plain"}}, unique={"key": "key"}
    )
    asked.get(timeout=10)
    assert "jobdedup" not in the_message(redis_client, world, f"{key}-plain")["headers"]
    asked = jobs.asking.apply_async(
        (key, jobs.noticing.name, 1), {"options": {"queue": f"{key}-unique"}}, unique={"key": "key"}
    )
    ((_, _, child),) = asked.get(timeout=10)
    header = the_message(redis_client, world, f"{key}-unique")["headers"]["jobdedup"]
    assert header["id"] == child
    assert header["k"][0][0] != asked.fingerprint
    assert "n" not in header


@pytest.mark.worker
@pytest.mark.parametrize("task", [tasks.retrying, jobs.traced], ids=["plain", "headers lost by a tracer"])
def test_a_retry_carries_the_header_one_hand_over_further(
    world: Environment, node: Worker, diary: Journal, redis_client: redis.Redis, key: str, task: Any
) -> None:
    arguments = {"times": 1} if task is tasks.retrying else {}
    with Monitor(world.redis_url) as monitor:
        first = task.delay(key, countdown=0.5, **arguments)
        diary.wait_for_ends(1, key)
        wait_for(lambda: state(first, task.name) == [(first.id, "W")], what="the hand-over")
        assert task.delay(key).id == first.id, "an outsider is refused during the pause"
        assert first.get(timeout=10) == 1
    pushed = [each for each in monitor.commands("LPUSH") if first.id in each.words[2]]
    sent, again = (json.loads(each.words[2])["headers"] for each in pushed)
    assert again["jobdedup"] == {**sent["jobdedup"], "n": 1}, "the lock is that of the first message"
    assert not any("jobdedup_nonce" in headers for headers in (sent, again))
    assert [run.id for run in diary.runs(key)] == [first.id] * 2
    assert task.delay(key, **arguments).outcome == "accepted"


@pytest.mark.worker
def test_a_retry_with_other_arguments_keeps_the_lock_of_the_first(
    node: Worker, diary: Journal, key: str
) -> None:
    """The fingerprint is computed once; the outsider with the old arguments meets it."""
    first = tasks.retrying.delay(key, 1, 1.0)
    diary.wait_for_ends(1, key)
    assert app.send_task(tasks.retrying.name, (key,)).id == first.id
    assert first.get(timeout=10) == 1
