"""An overdue call, merged into and not come in time, is published again whole, under its id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from django_jobdedup.call import Call
from django_jobdedup.header import HEADER, Header
from django_jobdedup.middleware.keeping import stored
from django_jobdedup.middleware.planning import plan, with_header
from django_jobdedup.policies.unique import Unique
from django_jobdedup.recovery import reaper
from django_jobdedup.recovery.duty import never
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Merge
from testproject.celery import app
from tests.dispatching.looking import messages
from tests.jobs import tasks
from tests.rig.environment import Environment

from .outage import REFUSED, broker_at


def merged(memory: MemoryStore, *keys: str) -> Ref:
    """Merge calls into one waiting holder, whose sender dies before its publish; give its address."""
    for key in keys:
        task = tasks.until_executed
        call = Call(
            task.name, "the-id", (key,), {}, {"task_id": "the-id", "queue": "slow", "priority": 3},
            policy=Unique(key=[]), task_object=task,
        )  # fmt: skip
        planned = plan(call)
        assert planned.header is not None
        body = stored(with_header(call, planned.header))
        ref = Ref(planned.header.shard, planned.header.fingerprint)
        merging = {"counts": "PW", "on_waiting": "merge", "merge": Merge(), "pending": 15.0}
        memory.acquire(Acquire(ref, "the-id", args=body, name=task.name, **merging))
    return ref


def queued(client: redis.Redis, environment: Environment) -> list[dict[str, Any]]:
    return messages(client, environment.namespace, "slow\x06\x163")


def test_it_goes_out_with_all_its_options(
    memory: MemoryStore, celery_env: Environment, redis_client: redis.Redis
) -> None:
    ref = merged(memory, "a")
    memory.clock.advance(16)

    assert reap(never) == {"overdue": 1}
    (message,) = queued(redis_client, celery_env)
    assert (message["headers"]["id"], message["arguments"]) == ("the-id", ["a"])
    header = Header.decode(message["headers"][HEADER])
    assert header is not None
    assert (header.id, header.fingerprint, header.n) == ("the-id", ref.fingerprint, 0)
    memory.clock.advance(16)
    assert reap(never) == {}, "its message exists"


def test_while_the_app_is_off_nothing_goes_out(
    memory: MemoryStore, celery_env: Environment, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers would run it and claim nothing, so it would be overdue again, and again."""
    merged(memory, "a")
    memory.clock.advance(16)
    with monkeypatch.context() as patched:  # another setting would make the stores anew
        patched.setattr(reaper, "conf", SimpleNamespace(MODE="off"))
        assert reap(never) == {}
    assert queued(redis_client, celery_env) == []
    memory.clock.advance(16)
    assert reap(never) == {"overdue": 1}


def test_while_the_broker_is_down_it_stays_overdue(
    memory: MemoryStore, celery_env: Environment, redis_client: redis.Redis
) -> None:
    merged(memory, "a")
    memory.clock.advance(16)
    with broker_at(app, REFUSED):
        assert reap(never) == {"unavailable": 1}
    assert reap(never) == {}
    memory.clock.advance(16)
    assert reap(never) == {"overdue": 1}


def test_what_cannot_be_read_holds_up_no_other(
    memory: MemoryStore, celery_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    merged(memory, "a")
    memory.acquire(Acquire(Ref(2, "e" * 64), "b", counts="PW", on_waiting="merge", args=b"?", merge=Merge()))
    memory.clock.advance(16)

    assert reap(never) == {"overdue": 1, "failed": 1}
