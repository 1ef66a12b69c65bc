"""The end of a run wakes the job that was put off first: nobody sleeps for a minute before an open gate."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from celery.result import AsyncResult

from django_jobdedup import Reschedule
from django_jobdedup.control.finding import address_of
from django_jobdedup.middleware.keeping import accepted_by
from django_jobdedup.middleware.sleeping import LARGEST
from django_jobdedup.middleware.waking import wake
from django_jobdedup.stored_call.codec import decode
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.requests import Claim, Finish, Token
from django_jobdedup.stores.results import Claimed, Overdue, Released
from testproject.celery import app
from tests.dispatching.looking import store_calls
from tests.rig.engines import Engines
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.journal import Run as Record
from tests.rig.monitor import Monitor
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import waking_tasks as tasks
from .conftest import new_key
from .remains import LockKeys

pytestmark = [pytest.mark.worker, pytest.mark.timeout(240)]

#: Much longer than what all the runs of a story take, much shorter than a sleep, seconds.
SOON = 40.0
STORIES = {
    tasks.early: 4,
    tasks.late: 3,
    tasks.in_pairs: 5,
    tasks.one_waits: 2,
    tasks.retried: 2,
}
#: With Redis alone: what a kill means is the same in every store.
KILLED = {tasks.killed: 3, tasks.killed_late: 3}


@dataclass(frozen=True)
class Told:
    """What came of jobs that were called one after the other."""

    key: str
    results: Sequence[AsyncResult]
    values: Sequence[object]


@dataclass(frozen=True)
class Place:
    """One worker, what can be seen of it, and what has happened there."""

    worker: Worker
    journal: Journal
    namespace: str
    stories: dict[Any, Future[Told]]

    def told(self, task: Any) -> tuple[Told, list[Record]]:
        """Give one story and its runs."""
        told = self.stories[task].result()
        return told, self.journal.runs(told.key)


def tell(environment: Environment, journal: Journal, worker: Worker, task: Any, number: int) -> Told:
    """Call a task some times, each when the one before has started or was put off; let go; wait for all."""
    key = new_key(task.name.rpartition(".")[2])
    results: list[AsyncResult] = []
    for value in range(1, number + 1):
        link = tasks.linked.s(f"{key}-linked") if task is tasks.early else None
        result = task.apply_async((key, value), link=link)
        wait_for(
            lambda: (
                f"{result.id}] is put off" in worker.log  # noqa: B023
                or any(run.id == result.id for run in journal.runs(key))  # noqa: B023
            ),
            60,
            what=lambda: f"{result.id}\n{worker.log[-3000:]}",  # noqa: B023
        )
        results.append(result)
    with redis.Redis.from_url(environment.redis_url) as client:
        tasks.go(client, environment.namespace, key)
    return Told(key, results, [result.get(timeout=SOON, propagate=False) for result in results])


@pytest.fixture(scope="module", params=["redis", "database"])
def place(
    request: pytest.FixtureRequest,
    redis_server: Any,
    tmp_path_factory: pytest.TempPathFactory,
    engines: Engines,
) -> Iterator[Place]:
    """All stories, told side by side: the waits of one are the waits of all."""
    celery = {"imports": [tasks.MODULE], "worker_lost_wait": 0.5}
    with engines.open("sqlite_wal") as engine, ExitStack() as stack:
        database, stores = {"DATABASES": {"default": engine.database}}, {}
        if request.param == "database":
            database, stores = engine.settings_as_default, {"JOBDEDUP_STORES": engine.stores}
        environment = Environment(new_namespace(), redis_server.url, celery=celery, settings=stores)
        stack.callback(environment.clean)
        stack.enter_context(environment.entered(app))
        folder = tmp_path_factory.mktemp("waking")
        node = Worker(environment.having(settings=database), folder, concurrency=12)
        worker = stack.enter_context(node).wait_until_ready()
        journal = Journal(environment.redis_url, environment.namespace)
        stack.enter_context(closing(journal))
        calls = {**STORIES, **(KILLED if request.param == "redis" else {})}
        # SQLite has one writer at a time, and lets the others wait in no order.
        with ThreadPoolExecutor(len(calls) if request.param == "redis" else 2) as pool:
            stories = {
                task: pool.submit(tell, environment, journal, worker, task, number)
                for task, number in calls.items()
            }
        yield Place(worker, journal, environment.namespace, stories)
        if request.param == "redis":
            with closing(LockKeys(environment)) as keys:
                keys.wait_until_empty()
                assert not any(word in " ".join(keys.keys()) for word in (":asleep:", ":calls:"))


@pytest.mark.parametrize("task", [tasks.early, tasks.late])
def test_all_run_one_by_one_in_the_order_in_which_they_were_put_off(place: Place, task: Any) -> None:
    told, runs = place.told(task)
    number = STORIES[task]
    assert list(told.values) == list(range(1, number + 1))
    assert [run.id for run in runs] == [result.id for result in told.results]
    assert place.journal.overlaps(told.key) == []


def test_a_callback_goes_with_the_job_that_is_woken(place: Place) -> None:
    told, _ = place.told(tasks.early)
    wait_for(lambda: len(place.journal.runs(f"{told.key}-linked")) == len(told.results), 10)


def test_of_two_that_run_each_wakes_one(place: Place) -> None:
    told, runs = place.told(tasks.in_pairs)
    assert list(told.values) == [1, 2, 3, 4, 5]
    assert len({run.id for run in runs}) == len(runs) == 5
    for run in runs:
        beside = [other for other in runs if other.started < run.started < (other.ended or 0.0)]
        assert len(beside) <= 1


def test_the_job_that_waits_beside_a_running_one_is_woken(place: Place) -> None:
    told, runs = place.told(tasks.one_waits)
    assert list(told.values) == [1, 2]
    assert [run.id for run in runs] == [result.id for result in told.results]


def test_a_retry_of_a_job_that_was_woken_is_its_second_attempt(place: Place) -> None:
    told, runs = place.told(tasks.retried)
    assert list(told.values) == [1, 2]
    last = [run.retries for run in runs if run.id == told.results[1].id]
    assert last == [0, 1]


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_the_next_is_woken_when_one_that_was_woken_is_killed(place: Place) -> None:
    told, runs = place.told(tasks.killed)
    first, second, third = told.results
    assert (first.state, second.state, third.state) == ("SUCCESS", "FAILURE", "SUCCESS")
    assert [run.id for run in runs] == [first.id, second.id, third.id], "with early ack it does not run again"


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_one_that_was_woken_and_killed_with_late_ack_runs_again(place: Place) -> None:
    told, runs = place.told(tasks.killed_late)
    assert list(told.values) == [1, 2, 3]
    second = [run for run in runs if run.id == told.results[1].id]
    assert len(second) == 2
    assert place.journal.overlaps(told.key) == []


# --- another run is ours -----------------------------------------------------------------------------


class Run:
    """A run of the lock of a call that no body stands behind: it shuts the gate until it is ended."""

    def __init__(self, task: Any, *args: Any) -> None:
        alias, self.ref = address_of(task.name, app, args, {}, {})
        self.store = stores[alias]
        self.token = Token(self.ref, f"other-{new_key()}", new_key())
        answer = self.store.claim(Claim(self.ref, self.token.id, 0, self.token.nonce, lease=60))
        assert isinstance(answer, Claimed), answer

    def end(self) -> Overdue:
        """Release, and give whom that wakes."""
        answer = self.store.finish(Finish(self.token, 0))
        assert isinstance(answer, Released), answer
        assert answer.waiter is not None, "somebody sleeps"
        return answer.waiter


def asleep(place: Place, task: Any, *args: Any) -> AsyncResult:
    """Call a task behind another run, and wait until it was put off."""
    result = task.delay(*args)
    place.worker.wait_for_log(f"{result.id}] is put off")
    place.worker.wait_for_log(f"{result.id}] ignored")
    return result


def test_a_wake_too_soon_is_no_conflict_and_no_message_more(place: Place) -> None:
    """Of one put-off the second would be the end."""
    key = new_key()
    first = Run(tasks.put_off_once, key, 2)
    job = asleep(place, tasks.put_off_once, key, 2)
    for other in range(3):
        waiter = first.end()
        assert waiter.id == job.id
        first = Run(tasks.put_off_once, key, 2)  # faster at the gate
        wake(waiter)
        wait_for(lambda: place.worker.log.count(f"{job.id}] was woken too soon") > other, 20)  # noqa: B023
    assert place.worker.log.count(f"{job.id}] is put off") == 1
    wait_for(lambda: place.worker.log.count(f"{job.id}] ignored") == 4, 10)
    assert place.worker.log.count(f"{job.id}] received") == 5, "two, and a wake too soon three times"
    wake(first.end())
    assert job.get(timeout=SOON) == 2
    assert len(place.journal.runs(key)) == 1


def test_the_call_is_kept_as_it_was_sent(place: Place) -> None:
    key = new_key()
    first = Run(tasks.early, key, 2)
    late = datetime.now(UTC) + timedelta(hours=1)
    job = tasks.early.apply_async((key, 2), headers={"traceparent": "00-1"}, expires=late, priority=3)
    place.worker.wait_for_log(f"{job.id}] ignored")
    waiter = first.end()
    call, _ = decode(waiter.args, accept=accepted_by(app))
    assert (call.task, call.id, call.args) == (tasks.early.name, job.id, (key, 2))
    assert call.options["headers"]["traceparent"] == "00-1"
    assert datetime.fromisoformat(call.options["expires"]) == late
    assert call.options["priority"] == 3
    wake(waiter)
    assert job.get(timeout=SOON) == 2


@pytest.mark.parametrize("woken", [True, False])
def test_the_next_message_shows_no_more_of_itself_than_the_first(place: Place, woken: bool) -> None:
    """``argsrepr`` hides secrets from logs and monitors; and no job is its own parent."""
    key = new_key()
    first = Run(tasks.telling, key)
    soon = {} if woken else {"unique": {"on_conflict": Reschedule(after=0.3, up_to=0.6)}}
    job = tasks.telling.apply_async((key,), argsrepr="hidden", kwargsrepr="too", **soon)
    place.worker.wait_for_log(f"{job.id}] ignored")
    waiter = first.end()
    if woken:
        wake(waiter)
    assert job.get(timeout=SOON) == {"parent": None, "shown": ["hidden", "too"]}


def test_who_has_expired_is_not_woken_in_place_of_the_next(place: Place) -> None:
    key = new_key()
    first = Run(tasks.early, key, 2)
    expired = tasks.early.apply_async((key, 2), expires=2)
    place.worker.wait_for_log(f"{expired.id}] ignored")
    job = asleep(place, tasks.early, key, 2)
    time.sleep(2)
    waiter = first.end()
    assert waiter.id == job.id
    wake(waiter)
    assert job.get(timeout=SOON) == 2


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_large_call_sleeps_without_a_place(place: Place) -> None:
    """In a database its row has it already."""
    key = new_key()
    first = Run(tasks.heavy, key)
    asleep(place, tasks.heavy, key, "x" * LARGEST)
    small = asleep(place, tasks.heavy, key)
    waiter = first.end()
    assert waiter.id == small.id
    wake(waiter)
    small.get(timeout=SOON)


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_put_off_asks_twice_and_who_is_woken_no_more_than_any_other(
    place: Place, redis_server: Any
) -> None:
    key, monitor = new_key(), Monitor(redis_server.url)
    first = Run(tasks.early, key, 2)
    verbs = {sha: verb for verb, sha in first.store.line.scripts.sha.items()}  # type: ignore[attr-defined]

    def asked() -> list[str]:
        """What the store was asked, but for leases: how often one is renewed is a question of time."""
        calls = [call.words[1] for call in store_calls(monitor, place.namespace)]
        # Its text, not its digest, where it is renewed for the first time.
        return [verbs[sha] for sha in calls if sha in verbs and verbs[sha] != "renew"]

    with monitor:
        job = asleep(place, tasks.early, key, 2)
    assert asked() == ["claim", "asleep"]
    waiter = first.end()
    with monitor:
        wake(waiter)
        job.get(timeout=SOON)
        place.worker.wait_for_log(f"{job.id}] succeeded")
    assert asked() == ["claim", "finish"]
