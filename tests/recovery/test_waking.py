"""A run whose worker is dead lets nobody go, so the reaper wakes the job that was put off first behind it."""

from __future__ import annotations

import redis

from django_jobdedup.call import Call
from django_jobdedup.header import HEADER, Header
from django_jobdedup.middleware.keeping import stored
from django_jobdedup.middleware.planning import plan, with_header
from django_jobdedup.policies.unique import Unique
from django_jobdedup.recovery.duty import never
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Claim, Sleep
from django_jobdedup.stores.results import Asleep, Busy
from tests.dispatching.looking import messages
from tests.jobs import tasks
from tests.rig.environment import Environment

from .conftest import Locks

LONG = 3000.0
"""Seconds for which the message of the job sleeps."""


def put_off(memory: MemoryStore) -> Ref:
    """Put a job off behind a run, as a worker does; give the address of their lock."""
    task = tasks.while_executing
    options = {"task_id": "second", "queue": "slow"}
    policy = Unique("while_executing", key="key")
    call = Call(task.name, "second", ("k",), {}, options, policy=policy, task_object=task)
    planned = plan(call)
    assert planned.header is not None
    body = stored(with_header(call, planned.header))
    ref = Ref(planned.header.shard, planned.header.fingerprint)
    Locks(memory, "django_jobdedup.maintain").run("first", ref, gate=1)
    assert isinstance(memory.claim(Claim(ref, "second", 0, "try", gate=1)), Busy)
    assert memory.asleep(Sleep(ref, "second", 0, call=body, life=LONG)) == Asleep()
    return ref


def test_the_first_behind_a_lost_run_is_woken(
    memory: MemoryStore, celery_env: Environment, redis_client: redis.Redis
) -> None:
    ref = put_off(memory)
    assert reap(never) == {}
    memory.clock.advance(50)

    assert reap(never) == {"lost": 1}
    (message,) = messages(redis_client, celery_env.namespace, "slow")
    assert (message["headers"]["id"], message["arguments"]) == ("second", ["k"])
    assert message["headers"]["eta"] is None
    header = Header.decode(message["headers"][HEADER])
    assert header is not None
    assert (header.fingerprint, header.woken) == (ref.fingerprint, True)
    assert reap(never) == {}
