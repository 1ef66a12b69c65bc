"""What becomes of those who follow, whatever becomes of the job that they follow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from celery import chain, chord, group
from celery.result import AsyncResult

from django_jobdedup import Unique, WinnerFailed
from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.resolve import policy_of
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import Acquired
from tests.jobs.tasks import JobError
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import tasks
from .conftest import WAIT

pytestmark = [pytest.mark.worker, pytest.mark.timeout(120)]

ROUTES = {tasks.retried.name: {"queue": "other"}, tasks.tail.name: {"queue": "tails"}}
WORLD = {"celery": {"task_routes": ROUTES}}


@pytest.fixture(scope="module")
def others(world: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Worker]]:
    """A worker for each of the other queues, on that queue only."""
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("others")
        nodes = [
            stack.enter_context(Worker(world, folder, pool="threads", queues=[queue]))
            for queue in ("other", "tails")
        ]
        yield [each.wait_until_ready() for each in nodes]


def running(diary: Journal, task: Any, key: str, *args: Any, **options: Any) -> AsyncResult:
    """Start a job, and wait until its body runs."""
    result: AsyncResult = task.apply_async((key, *args), **options)
    diary.wait_for_runs(1, key)
    return result


def test_an_outcome_is_followed_and_its_caller_told(node: Worker, diary: Journal, key: str) -> None:
    winner = running(diary, tasks.follow, key, 1.0)
    follower = tasks.follow.apply_async((key,), task_id=f"{key}-promised", link=tasks.quiet.si(f"{key}-link"))
    assert (follower.outcome, follower.duplicate, follower.id) == ("followed", True, f"{key}-promised")
    assert follower.fingerprint == winner.fingerprint
    assert follower.get(timeout=WAIT) == winner.get(timeout=WAIT) == f"{key} by {winner.id}"
    assert follower.state == "SUCCESS"
    diary.wait_for_ends(1, f"{key}-link")
    assert len(diary.runs(key)) == 1


def test_an_outcome_that_is_there_is_taken_at_once(node: Worker, diary: Journal, key: str) -> None:
    """``until_expired``: the job has ended, its lock is kept."""
    winner = tasks.nightly.delay(key)
    value = winner.get(timeout=WAIT)
    follower = chain(tasks.nightly.si(key), tasks.quiet.si(f"{key}-on")).apply_async()
    assert follower.parent.get(timeout=WAIT) == value
    diary.wait_for_ends(1, f"{key}-on")
    assert len(diary.runs(key)) == 1
    assert "is put off" not in "".join(_lines(node, follower.parent.id))


@pytest.mark.slow
def test_who_follows_a_job_whose_result_has_expired_ends_all_the_same(
    node: Worker, diary: Journal, key: str
) -> None:
    """After half a minute; the body has run, so it does not run again, and what comes next goes on."""
    winner = tasks.nightly.delay(key)
    winner.get(timeout=WAIT)
    winner.forget()
    done = chain(tasks.nightly.si(key), tasks.quiet.si(f"{key}-on")).apply_async()
    body = chord([tasks.nightly.si(key), tasks.plain.si(f"{key}-other")], tasks.total.s(f"{key}-body"))
    values = body.apply_async().get(timeout=3 * WAIT)
    covered = {"suppressed_by": winner.id}
    assert done.parent.get(timeout=WAIT) == values[0] == covered
    diary.wait_for_ends(1, f"{key}-on", WAIT)
    assert [run.id for run in diary.runs(key)] == [winner.id]


def _lines(node: Worker, task_id: str) -> list[str]:
    return [line for line in node.log.splitlines() if task_id in line]


def test_an_error_is_raised_in_each_that_follows(node: Worker, diary: Journal, key: str) -> None:
    winner = running(diary, tasks.failing, key)
    linked = tasks.failing.apply_async((key,), link_error=tasks.told.s(f"{key}-told"))
    body = chord(
        [tasks.failing.si(key), tasks.plain.si(f"{key}-other")],
        tasks.total.s(f"{key}-body").on_error(tasks.told.s(f"{key}-body-told")),
    ).apply_async()
    for result in (winner, linked):
        with pytest.raises(JobError, match=key):
            result.get(timeout=WAIT)
    with pytest.raises(Exception, match=key):
        body.get(timeout=WAIT)
    for told in (f"{key}-told", f"{key}-body-told"):
        diary.wait_for_ends(1, told)
    assert len(diary.runs(key)) == 1
    assert diary.runs(f"{key}-body") == []


def test_an_error_that_stops_a_worker_does_not_stop_that_of_a_follower(
    world: Environment, diary: Journal, key: str, tmp_path: Any
) -> None:
    """A MemoryError of a body ends Celery's worker; of its followers each would end another."""
    lost = world.having(celery={"task_default_queue": "lost"})
    with Worker(lost, tmp_path, queues=["lost"]) as victim:
        victim.wait_until_ready()
        winner = running(diary, tasks.out_of_memory, key, queue="lost")
        follower = tasks.out_of_memory.apply_async((key,), task_id=f"{key}-promised", queue="lost2")
        with pytest.raises(MemoryError):
            winner.get(timeout=WAIT)
    with Worker(lost, tmp_path, queues=["lost2"]) as other:
        other.wait_until_ready()
        with pytest.raises(WinnerFailed, match="which this one follows, ended with MemoryError"):
            follower.get(timeout=WAIT)
        again = tasks.plain.apply_async((f"{key}-alive",), queue="lost2")
        assert again.get(timeout=WAIT)


def test_a_job_that_retries_is_followed_to_its_end(
    node: Worker, others: list[Worker], diary: Journal, key: str
) -> None:
    """The follower runs on its own queue, whose worker has nothing but that queue; so does its tail."""
    winner = running(diary, tasks.retried, key)
    followers = [chain(tasks.retried.si(key), tasks.tail.s(f"{key}-{n}")).apply_async() for n in range(2)]
    value = winner.get(timeout=WAIT)
    assert [each.get(timeout=WAIT) for each in followers] == [value] * 2
    assert [run.id for run in diary.runs(key)] == [winner.id] * 3
    assert all(each.parent.id not in node.log for each in followers)


def test_a_job_that_replaces_itself_is_followed_to_the_end_of_that(
    node: Worker, others: list[Worker], diary: Journal, key: str
) -> None:
    winner = running(diary, tasks.replaced, key)
    follower = group([tasks.replaced.si(key)]).apply_async()
    assert follower.get(timeout=WAIT) == [winner.get(timeout=WAIT)]
    assert len(diary.runs(f"{key}-two")) == 1


def test_a_job_that_gave_its_place_away_is_followed_to_the_one_that_took_it(
    node: Worker, diary: Journal, key: str
) -> None:
    """The follower meets the first, which a second replaces before either has started."""
    first = tasks.replaceable.apply_async((key, 1), countdown=1.5)
    skipping = {"on_conflict": "skip"}
    follower = tasks.replaceable.apply_async((key, 2), task_id=f"{key}-promised", unique=skipping)
    second = tasks.replaceable.apply_async((key, 3), countdown=0.8)
    assert (first.outcome, follower.outcome, second.outcome) == ("accepted", "followed", "accepted")
    assert follower.get(timeout=WAIT) == second.get(timeout=WAIT) == f"{key} by {second.id}"
    assert first.get(timeout=WAIT) == {"suppressed_by": second.id}
    assert len(diary.runs(key)) == 1


def test_a_call_that_joins_a_waiting_job_takes_what_that_makes_of_its_arguments(
    node: Worker, diary: Journal, key: str
) -> None:
    first = tasks.rerunning.apply_async((key, 1), countdown=1.0)
    steps = chain(tasks.rerunning.si(key, 2), tasks.quiet.si(f"{key}-on")).apply_async(countdown=1.0)
    assert first.get(timeout=WAIT) == 2
    assert steps.parent.get(timeout=WAIT) == 2
    diary.wait_for_ends(1, f"{key}-on")
    assert len(diary.runs(key)) == 1


def test_one_follower_takes_over_from_a_revoked_job_and_the_others_follow_that(
    node: Worker, diary: Journal, key: str
) -> None:
    winner = tasks.follow.apply_async((key,), countdown=2.0)
    members = group(tasks.follow.si(key) for _ in range(3)).apply_async()
    winner.revoke()
    values = members.get(timeout=WAIT)
    (run,) = diary.runs(key)
    assert run.id in {member.id for member in members}
    assert values == [f"{key} by {run.id}"] * 3
    assert winner.state == "REVOKED"
    node.wait_for_log(f"{run.id}] runs after all: job {winner.id}, which it followed, is gone")


def test_one_follower_takes_over_from_a_job_whose_worker_was_killed(
    world: Environment, node: Worker, diary: Journal, key: str, tmp_path: Any
) -> None:
    with Worker(world, tmp_path, queues=["doomed"]) as doomed:
        doomed.wait_until_ready()
        winner = running(diary, tasks.follow, key, 60.0, queue="doomed")
        members = group(tasks.follow.si(key, 0.2) for _ in range(3)).apply_async()
        wait_for(lambda: all(_lines(node, member.id) for member in members), 10)
        doomed.kill()
        values = members.get(timeout=WAIT)
    dead, run = diary.runs(key)
    assert (dead.id, dead.ended) == (winner.id, None)
    assert values == [f"{key} by {run.id}"] * 3
    assert diary.overlaps(key) == []


def test_a_follower_of_a_job_that_was_never_published_takes_over(node: Worker, key: str) -> None:
    """Its sender has died between the reservation and the publish: nobody confirms it, so it lapses."""
    policy = policy_of(tasks.follow.name, tasks.follow.unique)
    assert isinstance(policy, Unique)
    identity = identify(policy, tasks.follow.name, tasks.follow, (key,), {}, "celery")
    assert identity is not None
    ghost = Acquire(Ref(identity.shard, identity.fingerprint), f"{key}-ghost", pending=1.0)
    assert isinstance(stores["default"].acquire(ghost), Acquired)
    follower = tasks.follow.apply_async((key, 0.0), task_id=f"{key}-promised")
    assert (follower.outcome, follower.fingerprint) == ("followed", identity.fingerprint)
    assert follower.get(timeout=WAIT) == f"{key} by {follower.id}"
