"""Celery's ``start_worker`` in a thread of the test, on the memory broker, with the locks of the test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from django_jobdedup.testing import Kit, override_jobdedup
from tests.rig.environment import Environment
from tests.rig.waiting import wait_for

from . import jobs


@contextmanager
def worker(app: Celery) -> Iterator[None]:
    with start_worker(app, perform_ping_check=False, pool="threads", concurrency=2):
        yield


def test_a_worker_in_a_thread_shares_the_locks_of_the_test(in_memory: Celery, jobdedup: Kit) -> None:
    """One start: what waits, what runs beyond its lease, what is put off, what another test has left."""
    with override_jobdedup():
        jobs.plain.delay("left by another test")
    first, second = jobs.unique.delay("k"), jobs.unique.delay("k")
    assert (second.id, second.outcome) == (first.id, "suppressed")
    held = jobs.holding.delay("h", 30)
    with worker(in_memory):
        assert second.get(timeout=10) == "k"
        wait_for(lambda: "running" in {lock.state for lock in jobdedup.locks(jobs.holding)}, 10, what="a run")
        [lock] = jobdedup.locks(jobs.holding)
        wait_for(lambda: jobdedup.locks(jobs.holding)[0].until > lock.until + 0.5, 10, what="a renewal")
        assert jobs.holding.delay("h", 30).id == held.id
        jobs.gate.set()
        assert held.get(timeout=10) is True
    assert jobdedup.starts() == ["run", "run"]
    assert jobdedup.outcomes(jobs.holding) == ["accepted", "suppressed"]
    assert jobdedup.locks() == []
    assert jobs.ran == [("unique", "k")]


def test_one_worker_serves_the_kits_of_many_tests(in_memory: Celery) -> None:
    """As with ``start_worker`` in ``setUpClass``: each kit hears of its own test."""
    with worker(in_memory):
        for _ in range(3):
            with override_jobdedup() as kit:
                assert jobs.unique.delay("k").get(timeout=10) == "k"
                assert (kit.outcomes(), kit.starts(), kit.locks()) == (["accepted"], ["run"], [])


@pytest.mark.worker
def test_a_worker_process_refuses_the_memory_store(celery_env: Environment) -> None:
    store = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "testproject", "worker", "--pool", "solo"],
        env=celery_env.having(settings={"JOBDEDUP_STORES": store}).for_process(),
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert ended.returncode != 0
    assert "this worker does not start" in ended.stderr
    assert "JOBDEDUP_STORES['default'] is the memory store" in ended.stderr
