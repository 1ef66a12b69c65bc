"""Calls that wait for a commit: told apart from those that were carried out."""

from __future__ import annotations

from functools import partial

import pytest
from celery.contrib.django.task import DjangoTask
from django.db import transaction
from django.test import TestCase

from django_jobdedup.testing import Kit, PendingCall, override_jobdedup

from . import jobs

NAME = jobs.unique.name


@override_jobdedup()
class WithinATestCase(TestCase):
    """Django wraps each test in a transaction that never commits."""

    jobdedup: Kit

    def test_what_is_put_aside_is_pending(self) -> None:
        assert isinstance(jobs.unique, DjangoTask)
        jobs.unique.delay_on_commit("k")
        jobs.unique.apply_async_on_commit(("l",), countdown=5)
        jobs.unique.apply_async_on_commit(args=["m"], kwargs={})
        jobs.plain.delay_on_commit(key="n")
        transaction.on_commit(partial(jobs.unique.delay, "o"))
        assert [(call.args, call.kwargs) for call in self.jobdedup.pending_after_commit(jobs.unique)] == [
            (("k",), {}),
            (("l",), {}),
            (("m",), {}),
            (("o",), {}),
        ]
        assert self.jobdedup.pending_after_commit(jobs.plain.name) == [
            PendingCall(jobs.plain.name, (), {"key": "n"}, "default")
        ]
        assert len(self.jobdedup.pending_after_commit()) == 5
        assert self.jobdedup.outcomes() == []

    def test_what_is_captured_and_not_carried_out_is_pending(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            jobs.unique.delay_on_commit("k")
        assert len(self.jobdedup.pending_after_commit()) == 1
        [callback] = callbacks
        assert isinstance(callback, partial)
        assert (callback.func, callback.args) == (jobs.unique.delay, ("k",))
        callback()
        assert self.jobdedup.pending_after_commit() == []
        assert self.jobdedup.outcomes() == ["accepted"]

    def test_what_is_carried_out_is_not(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            jobs.unique.delay_on_commit("k")
            jobs.unique.delay_on_commit("k")
        assert self.jobdedup.pending_after_commit() == []
        assert self.jobdedup.outcomes() == ["accepted", "suppressed"]

    def test_what_is_rolled_back_is_not(self) -> None:
        with transaction.atomic():
            jobs.unique.delay_on_commit("k")
            assert len(self.jobdedup.pending_after_commit()) == 1
            transaction.set_rollback(True)
        assert self.jobdedup.pending_after_commit() == []
        assert self.jobdedup.outcomes() == []

    def test_other_callbacks_are_left_as_they_are(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            transaction.on_commit(function := lambda: None)
            transaction.on_commit(other := partial(len, ()), robust=True)
            assert self.jobdedup.pending_after_commit() == []
        assert callbacks == [function, other]


@pytest.mark.django_db(transaction=True)
def test_a_commit_carries_out(jobdedup: Kit) -> None:
    with transaction.atomic():
        jobs.unique.delay_on_commit("k")
        assert [call.task for call in jobdedup.pending_after_commit()] == [NAME]
    assert jobdedup.pending_after_commit() == []
    assert jobdedup.outcomes() == ["accepted"]


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_it_is_carried_out_at_once(jobdedup: Kit) -> None:
    jobs.unique.delay_on_commit("k")
    assert jobdedup.pending_after_commit() == []
    assert jobdedup.outcomes() == ["accepted"]
