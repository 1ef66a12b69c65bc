"""``override_jobdedup``: what it gives, and that nothing of it is left."""

from __future__ import annotations

import logging
import os
import secrets
import unittest
from datetime import timedelta
from inspect import signature
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from kombu.transport.memory import Channel

from django_jobdedup import DuplicateDispatch, PolicyError, dispatch_many, signals
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.middleware import mistake
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.testing import HeldLock, Kit, override_jobdedup
from tests.dispatching.looking import state

from . import jobs

# The three ways


def test_as_a_context_manager() -> None:
    before = django_settings.JOBDEDUP_STORES if hasattr(django_settings, "JOBDEDUP_STORES") else None
    with override_jobdedup() as kit:
        assert jobs.unique.delay("k").outcome == "accepted"
        assert isinstance(stores["default"], MemoryStore)
        assert len(kit.locks()) == 1
    assert getattr(django_settings, "JOBDEDUP_STORES", None) == before
    assert not isinstance(stores["default"], MemoryStore)
    with override_jobdedup() as kit:
        assert kit.locks() == []
        assert kit.outcomes() == []


class Cases(unittest.TestCase):
    """Decorated below; not collected."""

    __test__ = False
    jobdedup: Kit
    seen: list[Kit] = []  # noqa: RUF012

    def setUp(self) -> None:
        jobs.unique.delay("from setUp")

    def test_one(self) -> None:
        self.seen.append(self.jobdedup)
        assert self.jobdedup.outcomes() == ["accepted"]

    def test_two(self) -> None:
        self.test_one()


def test_as_a_decorator_of_a_class_each_test_has_a_kit_of_its_own() -> None:
    Cases.seen.clear()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(override_jobdedup()(type("Own", (Cases,), {})))
    result = unittest.TestResult()
    suite.run(result)
    assert (result.testsRun, result.failures, result.errors) == (2, [], [])
    assert len(set(map(id, Cases.seen))) == 2


def test_as_a_decorator_of_functions() -> None:
    @override_jobdedup()
    def plain() -> Any:
        return jobs.unique.delay("k").outcome

    @override_jobdedup(kwarg_name="kit")
    def handed(kit: Kit) -> Any:
        jobs.unique.delay("k")
        return kit.outcomes()

    @override_jobdedup(kwarg_name="kit")
    async def later(kit: Kit) -> Any:
        jobs.unique.delay("k")
        return kit.outcomes()

    assert [plain(), plain()] == ["accepted"] * 2
    assert [handed(), async_to_sync(later)()] == [["accepted"]] * 2


def test_pytest_does_not_see_the_argument_that_is_handed() -> None:
    """It would look for a fixture of that name."""

    @override_jobdedup(kwarg_name="kit")
    def handed(tmp_path: str, kit: Kit) -> None: ...

    assert list(signature(handed).parameters) == ["tmp_path"]


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match=r"no such setting; known: .* Did you mean \"JOBDEDUP_TASKS\"\?$"):
        override_jobdedup(JOBDEDUP_TAKS={})


def test_a_decorated_function_may_call_itself() -> None:
    @override_jobdedup(kwarg_name="kit")
    def nested(deep: int, kit: Kit) -> list[list[str]]:
        jobs.unique.delay("k")
        inner = nested(deep - 1) if deep else []
        return [*inner, [*kit.outcomes()]]

    # The outer one hears of the inner dispatch; its locks are apart.
    assert nested(1) == [["accepted"], ["accepted", "accepted"]]


# Settings


def test_settings_of_another_app_are_refused() -> None:
    with pytest.raises(TypeError, match="override_settings"):
        override_jobdedup(CELERY_TASK_ALWAYS_EAGER=True)


def test_it_says_when_the_app_is_missing(settings: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"), override_settings(INSTALLED_APPS=[]):
        override_jobdedup().enable()
    assert apps.is_installed("django_jobdedup")


def test_a_wrong_setting_leaves_nothing_behind() -> None:
    wrong = override_jobdedup(JOBDEDUP_EAGER="on")
    with pytest.raises(ImproperlyConfigured, match="JOBDEDUP_EAGER"), wrong:
        jobs.unique.apply(("k",))
    assert not isinstance(stores["default"], MemoryStore)


def test_settings_inside_a_test_leave_locks_and_clock_alone(settings: Any) -> None:
    with override_jobdedup(JOBDEDUP_TASKS={jobs.unique.name: {"unique": {"ttl": 60}}}) as kit:
        jobs.unique.delay("k")
        settings.JOBDEDUP_GRACE = 10
        with override_settings(JOBDEDUP_NAMESPACE="other"):
            assert jobs.unique.delay("k").outcome == "suppressed"
            kit.clock.advance(61)
        assert kit.locks() == []


def test_every_alias_is_in_memory_and_on_one_clock() -> None:
    redis = {"BACKEND": "django_jobdedup.stores.redis.store.RedisStore", "LOCATION": "jobdedup"}
    with override_settings(JOBDEDUP_STORES={"default": redis, "other": redis}), override_jobdedup() as kit:
        jobs.unique.delay("k")
        jobs.unique.apply_async(("k",), unique={"store": "other"})
        assert [lock.store for lock in kit.locks()] == ["default", "other"]
        kit.clock.advance(hours=2)
        assert kit.locks() == []


def test_a_project_whose_tests_are_off_has_the_locks_of_the_kit() -> None:
    with override_settings(JOBDEDUP_MODE="off"), override_jobdedup():
        assert jobs.unique.delay("k").outcome == "accepted"


def test_bypass_and_off_can_be_asked_for(eager: None) -> None:
    with override_jobdedup(JOBDEDUP_EAGER="bypass") as kit:
        assert jobs.unique.delay("k").outcome == "bypassed"
        assert kit.outcomes() == []
    with override_jobdedup(JOBDEDUP_MODE="off"):
        assert jobs.unique.delay("k").outcome == "bypassed"


# What the kit tells


def test_outcomes_are_those_of_one_task_or_of_all(jobdedup: Kit) -> None:
    jobs.unique.delay("k")
    jobs.nightly.delay("k")
    jobs.unique.delay("k")
    with pytest.raises(DuplicateDispatch):
        [jobs.strict.delay("k") for _ in range(2)]
    assert jobdedup.outcomes() == ["accepted", "accepted", "suppressed", "accepted", "suppressed"]
    assert jobdedup.outcomes(jobs.unique) == jobdedup.outcomes(jobs.unique.name) == ["accepted", "suppressed"]
    assert jobdedup.outcomes(jobs.plain) == []
    with pytest.raises(TypeError, match="a task or its name"):
        jobdedup.outcomes(jobs)


def test_locks_are_small_frozen_values(jobdedup: Kit) -> None:
    result = jobs.unique.delay("k")
    jobs.unique.delay("k")
    jobs.nightly.delay("k")
    [lock] = jobdedup.locks(jobs.unique)
    assert lock == HeldLock(
        name=jobs.unique.name,
        state="waiting",
        task_id=result.id,
        fingerprint=result.fingerprint,
        since=lock.since,
        until=lock.until,
        refused=1,
    )
    assert lock.until - lock.since == pytest.approx(5400, abs=5)
    assert [each.name for each in jobdedup.locks()] == [jobs.unique.name, jobs.nightly.name]
    with pytest.raises(AttributeError):
        lock.state = "running"  # type: ignore[misc]


@pytest.mark.parametrize(
    "step",
    [
        {"seconds": 5401},
        {"seconds": timedelta(minutes=91)},
        {"minutes": 91},
        {"hours": 1, "minutes": 31},
        {"days": 1},
    ],
)
def test_the_clock_moves_in_any_unit(jobdedup: Kit, step: dict[str, Any]) -> None:
    jobs.unique.delay("k")
    jobdedup.clock.advance(minutes=1)
    assert len(jobdedup.locks()) == 1
    jobdedup.clock.advance(**step)
    assert jobdedup.locks() == []
    assert jobs.unique.delay("k").outcome == "accepted"


@pytest.mark.parametrize(
    "order", [(jobs.unique, jobs.nightly), (jobs.nightly, jobs.unique)], ids=["one", "other"]
)
def test_locks_are_shown_oldest_first(jobdedup: Kit, order: tuple[Any, ...]) -> None:
    for task in order:
        task.delay("k")
        jobdedup.clock.advance(1)
    assert [lock.name for lock in jobdedup.locks()] == [task.name for task in order]


# What is left


def test_messages_of_before_stay_and_those_of_the_test_go() -> None:
    older = jobs.plain.delay("older")
    with override_jobdedup():
        jobs.plain.delay("k")
    left = [message["headers"]["id"] for queue in Channel.queues.values() for message in queue.queue]
    assert left == [older.id]


def test_what_was_called_before_is_confirmed_in_its_own_store() -> None:
    before = jobs.unique.delay(secrets.token_hex(4))
    with override_jobdedup():
        confirmer.flush()
    assert state(before, jobs.unique.name) == [(before.id, "W")]


def test_a_mistake_of_which_another_test_was_told_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with override_jobdedup():
            mistake.report("here", jobs.unique.name, PolicyError("wrong"))
    assert caplog.text.count("goes without a lock: wrong") == 2


def test_nothing_is_confirmed_in_the_store_of_another_test(settings: Any) -> None:
    """The confirm is late by design; a kit that ends waits for its own."""
    for _ in range(5):
        with override_jobdedup():
            jobs.unique.delay("k")
        assert confirmer._waiting == []


def test_receivers_and_callbacks_are_gone(jobdedup: Kit) -> None:
    from django.db.backends.base.base import BaseDatabaseWrapper

    counted = [len(signal.receivers) for signal in signals.SIGNALS.values()]
    on_commit = BaseDatabaseWrapper.on_commit
    with override_jobdedup():
        assert BaseDatabaseWrapper.on_commit is not on_commit
    assert BaseDatabaseWrapper.on_commit is on_commit
    assert [len(signal.receivers) for signal in signals.SIGNALS.values()] == counted


def test_a_store_of_a_test_that_has_ended_is_refused() -> None:
    with override_jobdedup():
        left = dict(django_settings.JOBDEDUP_STORES)
    with override_settings(JOBDEDUP_STORES=left), pytest.raises(ImproperlyConfigured, match="has ended"):
        stores["default"]


def test_a_child_process_is_refused(jobdedup: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """The kit's store says so to a fork, which goes on without a lock, and to whoever asks for the locks."""
    jobs.unique.delay("k")
    jobdedup.locks()  # nothing is left for the thread that confirms
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        logging.disable()
        try:
            jobdedup.locks()
            said = "no error"
        except RuntimeError as error:
            said = f"{error}"
        os.write(write, f"{jobs.unique.delay('k').outcome}; {said}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    said = os.read(read, 4096).decode()
    os.close(read)
    os.close(write)
    assert said.startswith("unprotected; ")
    assert f"memory store of process {os.getpid()} was used in process {pid}" in said


# Mistakes in a test


def test_a_name_of_which_there_can_be_nothing_is_refused() -> None:
    with override_jobdedup() as kit:
        with pytest.raises(LookupError, match=r"no task 'tests\.testing\.jobs\.uniqe' .*Did you mean"):
            kit.outcomes("tests.testing.jobs.uniqe")
        with pytest.raises(LookupError, match="none was called"):
            kit.starts("nowhere")
        with pytest.raises(LookupError, match="none was called"):
            kit.pending_after_commit("nowhere")
        assert kit.outcomes("tests.testing.jobs.unique") == []


def test_the_clock_goes_forward_by_numbers() -> None:
    with override_jobdedup() as kit:
        with pytest.raises(ValueError, match=r"advance\(-5\) would go back"):
            kit.clock.advance(-5)
        with pytest.raises(TypeError, match="a number of seconds or a timedelta, not '5'"):
            kit.clock.advance("5")  # type: ignore[arg-type]


def test_the_decorator_wants_its_parentheses() -> None:
    with pytest.raises(TypeError, match=r"Write @override_jobdedup\(\), with parentheses"):
        override_jobdedup(Cases)


def test_the_locks_of_a_large_batch_are_all_there(jobdedup: Kit) -> None:
    dispatch_many(jobs.unique.s(number) for number in range(1100))
    assert len(jobdedup.locks(jobs.unique)) == 1100
