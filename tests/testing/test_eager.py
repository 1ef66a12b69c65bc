"""``JOBDEDUP_EAGER``: what becomes of a call that runs in its caller (case U42)."""

from __future__ import annotations

import functools
import threading
from typing import Any
from unittest.mock import ANY

import pytest
from celery import Task, chain, chord, group
from celery.exceptions import Retry
from celery.result import EagerResult

from django_jobdedup import DuplicateDispatch, FingerprintError, StoreUnavailable, Unique, signals
from django_jobdedup.eager import hook
from django_jobdedup.middleware.base import Middleware
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.later import later
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.results import Unavailable
from django_jobdedup.testing import Kit
from tests.rig.waiting import wait_for

from . import jobs

pytestmark = pytest.mark.usefixtures("eager")


def call(task: Any, *args: Any, unique: Any, **kwargs: Any) -> Any:
    """Call a task with a policy, which its body finds in the headers for its own calls."""
    return task.apply_async(args, kwargs, unique=unique, headers={"unique": unique})


# Bypass


def test_by_default_nothing_is_locked_and_results_are_marked() -> None:
    results = [
        jobs.unique.delay("k"),
        jobs.unique.apply_async(("k",), unique={"ttl": 10}),
        jobs.plain.delay("k"),
    ]
    assert [result.get() for result in results] == ["k"] * 3
    assert [(result.outcome, result.duplicate, result.fingerprint) for result in results] == [
        ("bypassed", False, "")
    ] * 3


def test_by_default_no_store_is_needed(settings: Any) -> None:
    """None is configured: any question would raise."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    assert call(jobs.recursive, "k", unique=True).get() == ("bypassed", ANY, "the innermost")


@pytest.mark.parametrize("mode", ["off", "enforce"])
def test_mode_off_wins(jobdedup: Kit, settings: Any, mode: str) -> None:
    settings.JOBDEDUP_MODE = mode
    assert jobs.unique.delay("k").outcome == {"off": "bypassed", "enforce": "accepted"}[mode]


# Enforce: the key is taken and freed within the call


def test_the_key_is_taken_and_freed_within_the_call(jobdedup: Kit) -> None:
    seen = []
    signals.execution_decided.connect(receiver := lambda **_: seen.extend(jobdedup.locks()))
    try:
        results = [jobs.unique.delay("k") for _ in range(2)]
    finally:
        signals.execution_decided.disconnect(receiver)
    assert [(lock.state, lock.task_id) for lock in seen] == [("running", result.id) for result in results]
    assert [result.get() for result in results] == ["k", "k"]
    assert [lock.fingerprint for lock in seen] == [result.fingerprint for result in results]
    assert jobdedup.outcomes(jobs.unique) == ["accepted", "accepted"]
    assert jobdedup.locks() == []


@pytest.mark.parametrize("apply", ["apply_async", "apply"])
@pytest.mark.parametrize("lock", ["until_executed", "while_executing", "until_and_while_executing"])
def test_a_recursive_equal_call_is_refused(jobdedup: Kit, lock: str, apply: str) -> None:
    policy = {"lock": lock, "key": "key"}
    outer = getattr(jobs.recursive, apply)(("k",), unique=policy, headers={"unique": policy})
    assert outer.outcome == "accepted"
    assert outer.get() == ("suppressed", outer.id, {"suppressed_by": outer.id})
    assert jobs.ran == [("recursive", "k")]
    assert jobdedup.locks() == []


def test_a_lock_that_is_free_at_the_start_lets_one_inner_call_run(jobdedup: Kit) -> None:
    policy = {"lock": "until_executing", "key": "key"}
    assert call(jobs.recursive, "k", unique=policy).get()[0] == "accepted"
    assert jobs.ran == [("recursive", "k")] * 2
    assert jobdedup.locks() == []


def test_a_recursive_call_of_another_key_runs(jobdedup: Kit) -> None:
    assert call(jobs.recursive, "k", unique=True).get()[0] == "accepted"
    assert jobs.ran == [("recursive", "k")] * 2


def test_a_recursive_call_that_must_not_be_a_duplicate_raises_into_the_body(jobdedup: Kit) -> None:
    result = jobs.strict.delay("k")
    assert isinstance(result.result, DuplicateDispatch)
    assert result.result.holder_id == result.id
    assert jobdedup.outcomes() == ["accepted", "suppressed"]
    assert jobdedup.locks() == []


def test_equal_calls_in_two_threads_exclude_each_other_beyond_the_lease(jobdedup: Kit) -> None:
    """The body takes as long as it takes: its lease is renewed meanwhile."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(jobs.holding.delay("k", 30)))
    thread.start()
    wait_for(lambda: [lock.state for lock in jobdedup.locks()] == ["running"], 10, what="a run")
    [lock] = jobdedup.locks()
    wait_for(lambda: jobdedup.locks()[0].until > lock.until + 1, 10, what="two renewals at least")
    assert jobs.holding.delay("k", 30).outcome == "suppressed"
    jobs.gate.set()
    thread.join()
    assert results[0].get() is True
    assert jobdedup.locks() == []


def test_a_kept_lock_refuses_until_its_time_is_over(jobdedup: Kit) -> None:
    first, second = jobs.nightly.delay("k"), jobs.nightly.delay("k")
    assert (second.outcome, second.duplicate, second.id) == ("suppressed", True, first.id)
    assert second.get() == {"suppressed_by": first.id}
    assert [lock.state for lock in jobdedup.locks()] == ["kept"]
    jobdedup.clock.advance(minutes=91)
    assert jobs.nightly.delay("k").outcome == "accepted"
    assert jobdedup.outcomes(jobs.nightly) == ["accepted", "suppressed", "accepted"]


# Every ending frees


@pytest.mark.parametrize("how", ["error", "ignore", "reject", "requeue"])
def test_an_ending_frees(jobdedup: Kit, how: str) -> None:
    jobs.ending.delay("k", how)
    assert jobdedup.locks() == []
    assert jobs.ending.delay("k", how).outcome == "accepted"


@pytest.mark.parametrize(
    ("how", "error"), [("error", jobs.JobError), ("exit", SystemExit), ("interrupt", KeyboardInterrupt)]
)
def test_an_exception_that_reaches_the_caller_frees(
    jobdedup: Kit, how: str, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        jobs.ending.apply(("k", how), throw=True)
    assert jobdedup.locks() == []


@pytest.mark.parametrize("throw", [False, True])
def test_a_body_that_is_never_reached_frees(jobdedup: Kit, throw: bool) -> None:
    if throw:
        with pytest.raises(jobs.JobError):
            jobs.unready.apply(("k",), throw=True)
    else:
        assert jobs.unready.delay("k").state == "FAILURE"
    assert jobdedup.outcomes() == ["accepted"]
    assert jobdedup.starts() == []
    assert jobdedup.locks() == []


def test_a_task_that_another_worker_would_try_again_frees(jobdedup: Kit) -> None:
    with pytest.raises(SystemExit):
        jobs.lost.delay("k")
    assert jobdedup.locks() == []


# Retry


@pytest.mark.parametrize("throw", [True, False])
def test_a_retry_in_place_keeps_the_key(jobdedup: Kit, throw: bool) -> None:
    assert tuple(jobs.retrying.delay("k", throw=throw).get()) == (2, True)
    assert len(jobs.ran) == 3
    assert jobdedup.starts() == ["run"] * 3
    assert jobdedup.outcomes() == ["accepted"] * 3
    assert jobdedup.locks() == []


def test_retries_to_exhaustion_free(jobdedup: Kit) -> None:
    result = jobs.exhausting.delay("k")
    assert isinstance(result.result, jobs.JobError)
    assert len(jobs.ran) == 3
    assert jobdedup.locks() == []


def test_a_retry_that_celery_does_not_carry_out_frees(jobdedup: Kit) -> None:
    """With ``throw=True`` (``task_eager_propagates``) it raises Retry to the caller instead."""
    with pytest.raises(Retry):
        jobs.retrying.apply(("k",), throw=True)
    assert len(jobs.ran) == 1
    assert jobdedup.locks() == []


def test_a_replacement_runs_inside_the_lock(jobdedup: Kit, in_memory: Any) -> None:
    """By ``apply()``: under always-eager Celery refuses to wait for it."""
    in_memory.conf.task_always_eager = False
    assert jobs.replaced.apply(("k",)).get() == "k"
    assert jobs.ran == [("replaced", "k"), ("unique", "k")]
    assert jobdedup.locks() == []


# Canvas


def test_chains_chords_groups_and_links_run_whole(jobdedup: Kit) -> None:
    assert chain(jobs.unique.s("k"), jobs.unique.s(), jobs.unique.s()).delay().get() == "k"
    assert chord([jobs.unique.s("k"), jobs.unique.s("k")], jobs.unique.s()).delay().get() == ["k", "k"]
    parts = group([jobs.unique.s("k"), jobs.unique.s("k")]).delay()
    assert [(part.get(), part.outcome) for part in parts.results] == [("k", "accepted")] * 2
    jobs.ran.clear()
    assert jobs.unique.apply_async(("k",), link=jobs.plain.s()).get() == "k"
    assert jobs.ran == [("unique", "k"), ("plain", "k")]
    assert jobdedup.locks() == []


def test_the_tail_of_a_refused_step_runs(jobdedup: Kit) -> None:
    """What hangs on a call is not lost with it: the next step gets the ``Suppressed``."""
    policy = {"key": "key"}
    outer = jobs.recursive.apply_async(
        ("k",), {"link": jobs.plain.s()}, unique=policy, headers={"unique": policy}
    )
    assert jobs.ran == [("recursive", "k"), ("plain", {"suppressed_by": outer.id})]
    assert jobdedup.locks() == []


@pytest.mark.parametrize("mistake", [{"key": "nonsense"}, {"nonsense": 1}])
def test_what_celery_starts_by_itself_does_not_fail_the_parent(
    jobdedup: Kit, caplog: pytest.LogCaptureFixture, mistake: dict[str, Any]
) -> None:
    """A linked task with a mistake in its policy runs without a lock; the parent is a success."""
    result = jobs.unique.apply_async(("k",), link=jobs.plain.s().set(unique=mistake))
    assert result.state == "SUCCESS"
    assert jobs.ran == [("unique", "k"), ("plain", "k")]
    assert "nonsense" in caplog.text


# Mistakes, stores, middleware


def test_a_mistake_raises_to_the_caller_before_anything_runs(jobdedup: Kit) -> None:
    with pytest.raises(FingerprintError, match="nonsense"):
        jobs.unique.apply_async(("k",), unique={"key": "nonsense"})
    assert jobs.ran == []


class Down(MemoryStore):
    """A store that does not answer."""

    def _each(self, verb: str, works: Any) -> Any:
        return [Unavailable("down")] * len(works)


DOWN = {"default": {"BACKEND": f"{__name__}.Down"}}


@pytest.mark.parametrize("lock", ["until_executed", "while_executing"])
def test_a_dead_store_is_passed_or_refused_as_the_policy_says(settings: Any, lock: str) -> None:
    settings.JOBDEDUP_EAGER = "enforce"
    settings.JOBDEDUP_STORES = DOWN
    policy = {"lock": lock, "key": "key"}
    assert call(jobs.unique, "k", unique=policy).get() == "k"
    with pytest.raises(StoreUnavailable):
        call(jobs.unique, "k", unique={**policy, "on_store_error": "raise"}).get()
    assert jobs.ran == [("unique", "k")]
    later.reset()  # no store of another test shall be asked for what this one did not give back


class Watching(Middleware):
    """Adds a second call to each, and notes what passes."""

    seen: list[str] = []  # noqa: RUF012 - each test empties it

    def dispatch(self, calls: Any, call_next: Any) -> Any:
        done = call_next(calls)
        self.seen.extend(f"{item.outcome} {item.id == item.call.id}" for item in done)
        return done

    def execute(self, execution: Any, call_next: Any) -> Any:
        self.seen.append(f"{execution.task.rpartition('.')[2]} {execution.eager}")
        return call_next(execution)


def test_middleware_is_around_dispatch_and_body(jobdedup: Kit, settings: Any) -> None:
    Watching.seen.clear()
    settings.JOBDEDUP_MIDDLEWARE = [
        f"{__name__}.Watching",
        "django_jobdedup.middleware.locking.LockingMiddleware",
    ]
    assert jobs.unique.delay("k").get() == "k"
    assert Watching.seen == ["accepted True", "unique True"]


# The hook


def test_the_hook_is_installed_once_and_can_be_taken_away(jobdedup: Kit) -> None:
    installed = Task.apply
    hook.install()
    assert Task.apply is installed
    try:
        hook.uninstall()
        assert not hook.is_installed()
        result = jobs.unique.delay("k")
        assert isinstance(result, EagerResult)
        assert not hasattr(result, "outcome")
    finally:
        hook.install()
    assert hook.is_installed()
    assert jobs.unique.delay("k").outcome == "accepted"


def test_a_hook_that_somebody_has_wrapped_lets_everything_pass(
    jobdedup: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Task.apply

    @functools.wraps(inner)
    def outer(self: Any, *args: Any, **kwargs: Any) -> Any:
        return inner(self, *args, **kwargs)

    monkeypatch.setattr(Task, "apply", outer)
    hook.uninstall()
    assert not hasattr(jobs.unique.delay("k"), "outcome")
    hook.install()
    assert jobs.unique.delay("k").outcome == "accepted"
    assert jobdedup.outcomes() == ["accepted"]


def test_positional_arguments_of_apply_are_understood(jobdedup: Kit) -> None:
    assert jobs.unique.apply(("k",), {}, None, None, "an id").id == "an id"
    assert jobdedup.outcomes() == ["accepted"]


def test_a_given_id_may_come_again(jobdedup: Kit) -> None:
    results = [jobs.unique.apply_async(("k",), task_id="an id") for _ in range(2)]
    assert [(result.id, result.outcome) for result in results] == [("an id", "accepted")] * 2
    assert len(jobs.ran) == 2


def test_the_call_can_pass_its_policy(jobdedup: Kit) -> None:
    policy = Unique(key="key")
    outer = jobs.recursive.apply_async(("k",), unique=policy, headers={"unique": False})
    assert outer.get()[0] == "bypassed"
    assert jobs.ran == [("recursive", "k")] * 2
    assert list(stores) == ["default"]
