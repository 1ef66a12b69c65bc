"""Numbers: what a process dispatched, and what the store decided for all of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import redis
from django.test import override_settings
from kombu.exceptions import OperationalError

from django_jobdedup import Reschedule
from django_jobdedup.conf import DEFAULT_MIDDLEWARE
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.middleware.counting import totals
from django_jobdedup.stores.handler import stores
from tests.conftest import StartWorker
from tests.dispatching import layers
from tests.dispatching.process import run_python
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for

NAME = "tests.jobs.tasks.until_executed"


@pytest.fixture
def counted(celery_env: Environment) -> Any:
    """Give what was counted in this process since the test began."""
    before = Counter(totals())

    def since() -> dict[tuple[str, str], int]:
        return dict(Counter(totals()) - before)

    return since


def in_store(name: str = NAME) -> dict[str, int]:
    """Give what the store has counted for a lock name."""
    found = stores["default"].counters()
    assert isinstance(found, dict)
    return found.get(name, {})


def test_a_process_counts_what_its_calls_became(counted: Any) -> None:
    for _ in range(3):
        tasks.until_executed.delay("a")
    tasks.until_executed.apply_async(("a",), unique={"on_conflict": Reschedule(after=60)})
    tasks.until_executed.apply_async(("a",), unique=False)
    tasks.while_executing.delay("a")
    tasks.plain.delay("a")
    assert counted() == {
        (NAME, "accepted"): 1,
        (NAME, "suppressed"): 2,
        (NAME, "rescheduled"): 1,
        (NAME, "bypassed"): 1,
        ("tests.jobs.tasks.while_executing", "accepted"): 1,
    }


def test_a_call_that_failed_is_not_counted_as_accepted(counted: Any) -> None:
    with override_settings(**layers.within("FailsAlways")), pytest.raises(OperationalError):
        tasks.until_executed.delay("a")
    assert counted() == {(NAME, "unknown"): 1}


def test_the_store_counts_over_all_processes(celery_env: Environment) -> None:
    source = """
        from tests.jobs import tasks
        for number in range(3):
            tasks.until_executed.delay("same")
        tasks.until_executed.delay(f"own-{__import__('os').getpid()}")
    """
    for _ in range(2):
        run_python(celery_env, source)
    tasks.until_executed.delay("same")
    assert in_store() == {"acquired": 3, "held": 6}


def test_a_forked_child_begins_anew_even_if_a_thread_was_counting(celery_env: Environment) -> None:
    assert run_python(
        celery_env,
        """
        import os, signal
        from django_jobdedup.middleware import counting
        from tests.jobs import tasks
        tasks.until_executed.delay("a")
        counting._totals._guard.acquire()  # as a thread does that the fork interrupts
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            tasks.until_executed.delay("b")
            tell(list(counting.totals().values()))
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """,
    ) == [[1]]


@pytest.mark.worker
def test_the_store_counts_starts_and_ends(
    celery_env: Environment, worker: StartWorker, journal: Journal
) -> None:
    worker(concurrency=2)
    assert tasks.until_executed.delay("a").get(timeout=10) == "a"
    assert tasks.until_executed.delay("b").get(timeout=10) == "b"
    found = wait_for(lambda: in_store() if len(in_store()) >= 3 else None, 5, what=in_store)
    assert found["acquired"] == 2
    assert found["claimed"] == 2
    assert {number for name, number in found.items() if name not in ("acquired", "claimed")} == {2}


def test_without_the_layer_nothing_is_counted(
    celery_env: Environment, redis_client: redis.Redis, counted: Any
) -> None:
    locking = [path for path in DEFAULT_MIDDLEWARE if "locking" in path]
    with override_settings(JOBDEDUP_MIDDLEWARE=locking):
        assert [tasks.until_executed.delay("a").outcome for _ in range(2)] == ["accepted", "suppressed"]
        confirmer.flush()
    assert counted() == {}
    assert in_store() == {}
