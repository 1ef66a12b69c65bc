"""A job that is revoked while a worker keeps it for its eta frees its lock then, not at the eta."""

from __future__ import annotations

import time

import pytest
from celery.exceptions import TaskRevokedError

from testproject.celery import app
from tests.rig.waiting import wait_for

from . import tasks
from .conftest import Stage, call_until_accepted, new_key

pytestmark = pytest.mark.worker


def test_a_revoked_far_job_frees_its_lock_at_the_next_lease_round(stage: Stage) -> None:
    """Its eta is ten minutes away; the next call is accepted within a lease, and runs."""
    key = new_key("revoked")
    far = tasks.early.apply_async((key,), countdown=600)
    wait_for(lambda: far.id in stage.worker.log, 10)
    assert tasks.early.delay(key).id == far.id
    app.control.revoke(far.id)
    asked = time.monotonic()
    again = call_until_accepted(lambda: tasks.early.delay(key), timeout=tasks.LEASE + 8)
    assert time.monotonic() - asked < tasks.LEASE + 2
    assert again.get(timeout=10) == key
    assert [run.id for run in stage.runs(key)] == [again.id]


def test_who_hears_that_a_job_has_expired_can_call_again_at_once(stage: Stage) -> None:
    """Its lock is free before its result says so."""
    for _ in range(40):
        key = new_key("expired")
        expired = tasks.early.apply_async((key,), expires=0.001)
        with pytest.raises(TaskRevokedError):
            expired.get(timeout=10, interval=0.001)
        assert tasks.early.delay(key).id != expired.id
