"""One world with one worker for all tests that need nothing special: the stage."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import kombu
import pytest
import redis
from celery import Celery
from celery.result import AsyncResult

from testproject.celery import app
from tests.rig.engines import Engines
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal, Run
from tests.rig.redelivery import FAST_REDELIVERY, restore_lapsed
from tests.rig.results import closing_backends
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import strategy_tasks, tasks
from .place import Place
from .remains import LockKeys

IMPORTS = {"imports": [tasks.MODULE]}
"""Celery options of a worker that knows the tasks of this folder."""


LONG = 20.0
"""Seconds that a run takes which its test is to let end."""


@dataclass(slots=True)
class Stage:
    """A world, its worker, and what can be seen of them."""

    environment: Environment
    worker: Worker
    journal: Journal
    lock_keys: LockKeys
    _seen: tuple[float, list[Run]] = field(default=(0.0, []))

    def runs(self, key: str) -> list[Run]:
        """Give the runs of a key, from a reading at most a tenth of a second old: many threads ask."""
        if time.monotonic() - self._seen[0] > 0.1:
            self._seen = (time.monotonic(), self.journal.runs())
        return [run for run in self._seen[1] if run.key == key]


def new_key(word: str = "k") -> str:
    """Make up a key that no other test uses."""
    return f"{word}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key that no other test uses."""
    return new_key()


@pytest.fixture(scope="package")
def stage(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A worker with ten processes that learns of lost ones within a second."""
    options = {**IMPORTS, "worker_lost_wait": 1.0}
    # The policy of a task that no worker knows.
    settings = {
        "JOBDEDUP_TASKS": {f"{tasks.MODULE}.nowhere": {"unique": tasks.declared()}},
    }
    environment = Environment(new_namespace(), redis_server.url, celery=options, settings=settings)
    with environment.entered(app), contextlib.ExitStack() as stack:
        worker = stack.enter_context(Worker(environment, tmp_path_factory.mktemp("stage"), concurrency=10))
        worker.wait_until_ready()
        journal = stack.enter_context(
            contextlib.closing(Journal(environment.redis_url, environment.namespace))
        )
        lock_keys = stack.enter_context(contextlib.closing(LockKeys(environment)))
        yield Stage(environment, worker, journal, lock_keys)
    environment.clean()


@contextlib.contextmanager
def swept() -> Iterator[None]:
    """Put lapsed messages back once a second where kombu itself would take a hundred."""
    if kombu.VERSION >= (5, 7):
        yield
        return
    stop = threading.Event()

    def sweep() -> None:
        while not stop.wait(1.0):
            restore_lapsed(app)

    thread = threading.Thread(target=sweep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module", params=["redis", "database"])
def place(
    request: pytest.FixtureRequest,
    redis_server: Any,
    tmp_path_factory: pytest.TempPathFactory,
    engines: Engines,
) -> Iterator[Place]:
    """A worker whose default database is that of the dead jobs; its locks lie in Redis, or there as well.

    It imports what the test's module names in ``ALSO``, too.
    """
    celery = {
        "imports": [strategy_tasks.MODULE, *getattr(request.module, "ALSO", ())],
        "broker_transport_options": FAST_REDELIVERY,
        "worker_lost_wait": 0.5,
    }
    with engines.open("sqlite_wal") as engine, contextlib.ExitStack() as stack:
        database = {"DATABASES": {"default": engine.database}}
        stores = {}
        if request.param == "database":
            database, stores = engine.settings_as_default, {"JOBDEDUP_STORES": engine.stores}
        environment = Environment(new_namespace(), redis_server.url, celery=celery, settings=stores)
        stack.callback(environment.clean)
        stack.enter_context(environment.entered(app))
        stack.enter_context(swept())
        folder = tmp_path_factory.mktemp("strategies")
        node = Worker(environment.having(settings=database), folder, concurrency=6)
        worker = stack.enter_context(node).wait_until_ready()
        journal = stack.enter_context(
            contextlib.closing(Journal(environment.redis_url, environment.namespace))
        )
        keys = stack.enter_context(contextlib.closing(LockKeys(environment)))
        client = stack.enter_context(redis.Redis.from_url(environment.redis_url, decode_responses=True))
        yield Place(worker, journal, keys, client, environment.namespace, engine, request.param)


def running(place: Place, task: Any, seconds: float = LONG, value: int = 1) -> tuple[str, Any]:
    """Start a job that runs for a while, or until ``place.let_end``; give its key and its result."""
    key = new_key()
    first = task.delay(key, value, seconds)
    wait_for(lambda: place.journal.runs(key), 10)
    return key, first


class Stories:
    """Stories that are told side by side: the waits of one are the waits of all.

    ``@stories.tell`` registers a function of the stage; ``begin`` starts them all.
    """

    def __init__(self) -> None:
        self._told: dict[str, Callable[[Stage], Any]] = {}

    def tell(self, story: Callable[[Stage], Any]) -> Callable[[Stage], Any]:
        """Register a story under the name of its function."""
        self._told[story.__name__] = story
        return story

    @contextlib.contextmanager
    def begin(self, stage: Stage) -> Iterator[Callable[[Callable[[Stage], Any]], Any]]:
        """Start all; give what returns the outcome of one, or raises what it raised."""
        with closing_backends(app), ThreadPoolExecutor(len(self._told)) as pool:
            futures = {name: pool.submit(story, stage) for name, story in self._told.items()}
            yield lambda story: futures[story.__name__].result()


def send_raw(name: str, *args: Any, **options: Any) -> AsyncResult:
    """Send as a process without the app does: Celery's own method, no hook."""
    send = Celery.send_task
    while hasattr(send, "__wrapped__"):
        send = send.__wrapped__
    result: AsyncResult = send(app, name, args, **options)
    return result


def call_until_accepted(call: Callable[[], Any], timeout: float = 10.0, every: float = 0.05) -> AsyncResult:
    """Repeat a call until it is accepted, and give its result; raises ``AssertionError``."""
    deadline = time.monotonic() + timeout
    while True:
        result: AsyncResult = call()
        if not result.duplicate:
            return result
        assert time.monotonic() < deadline, f"still refused after {timeout:g} s, by {result.id}"
        time.sleep(every)


#: Gives the outcome of a story, or raises what it raised.
Outcome = Callable[[Callable[[Stage], Any]], Any]


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Outcome]:
    """Tell all ``stories`` of a module side by side."""
    with request.module.stories.begin(stage) as told:
        yield told
