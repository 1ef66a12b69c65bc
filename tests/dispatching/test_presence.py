"""Workers first: a lock that no worker knows is never taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.test import override_settings
from kombu import Exchange, Queue

from django_jobdedup import StoreUnavailable
from django_jobdedup.dispatching import presence
from django_jobdedup.stores.handler import stores
from testproject.celery import app
from testproject.embedded_redis import free_port
from tests.conftest import StartWorker
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.monitor import Command, Monitor

from .looking import locks, messages

NAME = "tests.jobs.tasks.until_executed"
MEMORY = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}


@pytest.fixture(autouse=True)
def required(celery_env: Environment) -> Iterator[None]:
    """As in a project: locks are only taken where a worker was seen."""
    with override_settings(JOBDEDUP_REQUIRE_WORKER=True):
        yield


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue is asked about at every dispatch."""
    monkeypatch.setattr(presence, "ASK_EVERY", 0.0)


def questions(monitor: Monitor, namespace: str) -> list[Command]:
    """Give the questions for a worker's presence."""
    return [each for each in monitor.commands("EXISTS") if each.words[1].startswith(f"{namespace}:")]


def test_without_a_worker_nothing_is_locked_and_one_warning_says_what_to_do(
    celery_env: Environment, redis_client: redis.Redis, log: pytest.LogCaptureFixture, key: str
) -> None:
    results = [tasks.until_executed.delay(key) for _ in range(3)]
    assert {(result.outcome, result.duplicate) for result in results} == {("observed", False)}
    assert len({result.id for result in results}) == 3
    sent = messages(redis_client, celery_env.namespace)
    assert [message["headers"]["id"] for message in sent] == [result.id for result in results]
    # The header takes nothing; the tenant and the key in it are the sender's, whoever receives it.
    assert len({message["headers"]["jobdedup"]["k"][0][0] for message in sent}) == 1
    assert locks(redis_client, celery_env.namespace) == []
    (record,) = [record for record in log.records if record.levelname == "WARNING"]
    said = record.getMessage()
    assert "'celery'" in said
    assert "deploy and restart the workers first" in said
    assert "JOBDEDUP_REQUIRE_WORKER = False" in said


@pytest.mark.worker
def test_once_a_worker_was_seen_locks_are_taken(
    celery_env: Environment, worker: StartWorker, journal: Journal, at_once: None, key: str
) -> None:
    assert tasks.until_executed.delay(f"{key}-before").outcome == "observed"
    worker(concurrency=1)
    first, second = (tasks.until_executed.delay(key, 0.5) for _ in range(2))
    assert [first.outcome, second.outcome] == ["accepted", "suppressed"]
    assert second.get(timeout=10) == key
    assert len(journal.runs(f"{key}-before")) == 1
    assert len(journal.runs(key)) == 1


@pytest.mark.worker
def test_what_was_sent_before_a_worker_was_seen_runs_one_at_a_time(
    celery_env: Environment, worker: StartWorker, journal: Journal, key: str
) -> None:
    """Nothing that was observed is suppressed: each of them runs, behind the gate."""
    results = [tasks.until_executed.delay(key, 0.5) for _ in range(2)]
    worker(concurrency=3)
    assert [result.get(timeout=20) for result in results] == [key] * 2
    assert {run.id for run in journal.runs(key)} == {result.id for result in results}
    assert journal.overlaps(key) == []


def test_a_queue_is_asked_about_once_in_half_a_minute(
    celery_env: Environment, monitor: Monitor, key: str
) -> None:
    assert presence.ASK_EVERY == 30
    with monitor:
        for _ in range(3):
            tasks.until_executed.delay(key)
            tasks.until_executed.apply_async((key,), queue="other")
    asked = questions(monitor, celery_env.namespace)
    assert sorted(each.words[1].rpartition(":")[2] for each in asked) == ["celery", "other"]


def test_a_queue_is_asked_about_again_after_the_pause(
    celery_env: Environment, monitor: Monitor, at_once: None, key: str
) -> None:
    with monitor:
        assert [tasks.until_executed.delay(key).outcome for _ in range(2)] == ["observed"] * 2
        stores["default"].announce(["celery"], 60)
        assert [tasks.until_executed.delay(key).outcome for _ in range(3)] == [
            "accepted",
            "suppressed",
            "suppressed",
        ]
    assert len(questions(monitor, celery_env.namespace)) == 3, "a yes is kept"


@pytest.fixture
def routes() -> Iterator[Callable[..., None]]:
    """Route by ``task_routes`` and ``task_queues`` for the time of a test."""

    def route(task_routes: Any = None, task_queues: Any = None) -> None:
        app.conf.update(task_routes=task_routes, task_queues=task_queues)
        app.amqp.queues = app.amqp.Queues(task_queues)
        app.amqp._rtable = None
        app.amqp.router = app.amqp.Router()

    yield route
    route()


FAST = {"queue": "fast"}


@pytest.mark.parametrize(
    "options",
    [FAST, {"queue": Queue("fast")}, {"routing_key": "quick"}, {"exchange": "lane", "routing_key": "quick"}],
    ids=["queue by name", "queue", "routing key", "exchange"],
)
def test_the_queue_is_the_one_that_the_call_names(
    celery_env: Environment, routes: Callable[..., None], options: dict[str, Any], key: str
) -> None:
    routes(task_queues=[Queue("celery", routing_key="celery"), Queue("fast", Exchange("lane"), "quick")])
    stores["default"].announce(["fast"], 60)
    assert tasks.until_executed.apply_async((key,), **options).outcome == "accepted"
    assert app.send_task(NAME, (f"{key}-2",), **options).outcome == "accepted"
    assert tasks.until_executed.delay(f"{key}-3").outcome == "observed"


def by_argument(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
    """Route by the arguments of the call."""
    return FAST if args and args[0].endswith("fast") else None


@pytest.mark.parametrize(
    "task_routes", [{"tests.jobs.tasks.until_*": FAST}, [by_argument]], ids=["pattern", "function"]
)
def test_the_queue_is_the_one_that_the_settings_name(
    celery_env: Environment, routes: Callable[..., None], task_routes: Any, key: str
) -> None:
    routes(task_routes)
    stores["default"].announce(["fast"], 60)
    assert tasks.until_executed.delay(f"{key}-fast").outcome == "accepted"
    assert app.send_task(NAME, (f"{key}-2-fast",)).outcome == "accepted"
    other = tasks.until_executed.delay(key) if task_routes == [by_argument] else tasks.retrying.delay(key)
    assert other.outcome == "observed"


def test_a_lock_that_is_taken_by_the_worker_asks_nobody(
    celery_env: Environment, monitor: Monitor, log: pytest.LogCaptureFixture, key: str
) -> None:
    """``while_executing`` locks nothing at dispatch, so nothing can be left locked."""
    with monitor:
        assert tasks.while_executing.delay(key).outcome == "accepted"
    assert questions(monitor, celery_env.namespace) == []
    assert log.records == []


def test_retries_and_bypassed_calls_ask_nobody(
    celery_env: Environment, monitor: Monitor, log: pytest.LogCaptureFixture, key: str
) -> None:
    with monitor:
        assert tasks.until_executed.apply_async((key,), unique=False).outcome == "bypassed"
        tasks.plain.delay(key)
    assert questions(monitor, celery_env.namespace) == []
    assert log.records == []


def test_the_memory_store_never_asks(
    celery_env: Environment, log: pytest.LogCaptureFixture, key: str
) -> None:
    with override_settings(JOBDEDUP_STORES=MEMORY):
        assert [tasks.until_executed.delay(key).outcome for _ in range(2)] == ["accepted", "suppressed"]
    assert log.records == []


def test_a_store_that_is_down_is_the_business_of_the_policy(celery_env: Environment, key: str) -> None:
    """Nobody can say whether a worker was seen, so its ``on_store_error`` decides."""
    nowhere = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{free_port()}/0"}
    with override_settings(CACHES={"default": nowhere, "jobdedup": nowhere}):
        assert tasks.until_executed.delay(key).outcome == "unprotected"
        with pytest.raises(StoreUnavailable):
            tasks.until_executed.apply_async((key,), unique={"on_store_error": "raise"})


def test_a_setting_locks_without_asking(celery_env: Environment, monitor: Monitor, key: str) -> None:
    with override_settings(JOBDEDUP_REQUIRE_WORKER=False), monitor:
        assert tasks.until_executed.delay(key).outcome == "accepted"
    assert questions(monitor, celery_env.namespace) == []
