"""Confirming in the background: in batches, at exit, after a fork, without threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from django_jobdedup.dispatching import confirm
from django_jobdedup.dispatching.confirm import Confirmer, confirmer
from django_jobdedup.middleware.base import Seat
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.monitor import Monitor
from tests.rig.waiting import wait_for

from .looking import holders_of, state, store_calls
from .process import run_python

NAME = "tests.jobs.tasks.until_executed"


def states(fingerprint: str) -> list[str]:
    """Give the states of the holders of a lock."""
    return [holder.state for holder in holders_of(fingerprint, NAME)]


def test_a_seat_is_confirmed_soon_without_anybody_asking(celery_env: Environment, key: str) -> None:
    from django_jobdedup.conf import conf
    from django_jobdedup.fingerprint.digest import shard_of
    from django_jobdedup.stores.handler import stores
    from django_jobdedup.stores.record import Record, Ref

    result = tasks.until_executed.delay(key)

    def seen() -> bool:
        found = stores["default"].inspect(Ref(shard_of(NAME, conf.SHARDS), result.fingerprint))
        return isinstance(found, Record) and found.holders[0].state == "W"

    wait_for(seen, 2, what="the confirm")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The thread confirms a minute later; at the end it is roused, or the next tests would wait for it."""
    confirmer.flush()
    monkeypatch.setattr(confirm, "DELAY", 60.0)
    yield
    monkeypatch.undo()
    confirmer._full.set()


@pytest.mark.usefixtures("later")
def test_a_store_that_raises_takes_no_seat_of_another_with_it(
    celery_env: Environment, key: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would lapse after 15 s with their messages alive."""
    own = Confirmer()
    monkeypatch.setattr(own, "_start", lambda: True)
    result = tasks.until_executed.apply_async((key,), queue=f"nobody-{key}")
    own.add(Seat("nowhere", 0, "f" * 64, "an id"))
    own.add(*(seat for seat, _ in confirmer._waiting))
    own.flush()
    assert states(result.fingerprint) == ["W"]
    assert "There is no lock store 'nowhere'" in caplog.text


@pytest.mark.parametrize("way", ["falls off the end", "sys.exit", "an error"])
def test_a_process_that_ends_at_once_has_confirmed(celery_env: Environment, key: str, way: str) -> None:
    """Without the flush at exit the lock would stay pending, and lapse after 15 s with its message alive."""
    end = {"falls off the end": "pass", "sys.exit": "raise SystemExit", "an error": "raise SystemExit(0)"}[
        way
    ]
    ((outcome, _, _, fingerprint),) = run_python(
        celery_env,
        f"""
        from django_jobdedup.dispatching import confirm
        confirm.DELAY = 60
        from tests.jobs import tasks
        tell(seen(tasks.until_executed.delay({key!r})))
        {end}
        """,
    )
    assert outcome == "accepted"
    assert states(fingerprint) == ["W"]


def test_a_multiprocessing_child_has_confirmed_at_its_end(celery_env: Environment, key: str) -> None:
    """Such a child leaves by ``os._exit``, which runs no exit handler of Python's."""
    ((_, _, _, fingerprint),) = run_python(
        celery_env,
        f"""
        import multiprocessing
        from django_jobdedup.dispatching import confirm
        confirm.DELAY = 60
        from tests.jobs import tasks
        def work():
            tell(seen(tasks.until_executed.delay({key!r})))
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 0
        """,
    )
    assert states(fingerprint) == ["W"]


def test_a_pool_process_of_a_worker_has_confirmed_at_its_end(celery_env: Environment, key: str) -> None:
    ((_, _, _, fingerprint),) = run_python(
        celery_env,
        f"""
        import os
        from celery.concurrency.prefork import process_destructor
        from django_jobdedup.dispatching import confirm
        confirm.DELAY = 60
        from tests.jobs import tasks
        tell(seen(tasks.until_executed.delay({key!r})))
        process_destructor(os.getpid(), 0)
        os._exit(0)
        """,
    )
    assert states(fingerprint) == ["W"]


def test_a_forked_child_does_not_confirm_for_its_parent(celery_env: Environment, key: str) -> None:
    """The child starts with an empty queue and a thread of its own; the parent's seats stay the parent's."""
    parent, child, left = run_python(
        celery_env,
        f"""
        import os
        from django_jobdedup.dispatching import confirm
        confirm.DELAY = 60
        from tests.jobs import tasks
        first = tasks.until_executed.delay({key!r})
        tell(seen(first))
        pid = os.fork()
        if pid == 0:
            left = len(confirm.confirmer._waiting)
            confirm.DELAY = 0.01
            second = tasks.until_executed.delay({key!r} + "-child")
            tell(seen(second))
            confirm.confirmer.flush()
            tell(left)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert len(confirm.confirmer._waiting) == 1
        """,
    )
    assert left == 0
    assert states(parent[3]) == ["W"]
    assert states(child[3]) == ["W"]


def test_where_no_thread_can_start_the_confirm_is_synchronous(celery_env: Environment, key: str) -> None:
    """A stack that no machine has makes the start of every thread fail."""
    ((_, _, _, fingerprint), waiting, threads) = run_python(
        celery_env,
        f"""
        import threading
        from django_jobdedup.dispatching.confirm import confirmer
        from tests.jobs import tasks
        threading.stack_size(1 << 46)
        tell(seen(tasks.until_executed.delay({key!r})))
        tell(len(confirmer._waiting))
        tell([thread.name for thread in threading.enumerate()])
        """,
    )
    assert waiting == 0
    assert threads == ["MainThread"]
    assert states(fingerprint) == ["W"]


@pytest.mark.usefixtures("later")
def test_a_full_batch_does_not_wait(celery_env: Environment, key: str) -> None:
    own = Confirmer()
    result = tasks.until_executed.delay(key)
    (ref,) = [result.fingerprint]
    for number in range(confirm.BATCH):
        own.add(Seat("default", 0, ref, f"nobody-{number}"))
    wait_for(lambda: not own._waiting, 5, what="an empty queue")


def test_a_flush_sends_one_script_for_two_hundred_seats(
    celery_env: Environment, monitor: Monitor, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    own = Confirmer()
    monkeypatch.setattr(own, "_start", lambda: True)
    for number in range(confirm.BATCH - 1):
        own.add(Seat("default", 0, "f" * 64, f"nobody-{number}"))
    own.flush()
    with monitor:
        for number in range(confirm.BATCH - 1):
            own.add(Seat("default", 0, "f" * 64, f"nobody-{number}"))
        own.flush()
    assert [call.name for call in store_calls(monitor, celery_env.namespace)] == ["EVALSHA"]


def test_threads_dispatch_at_once(celery_env: Environment, redis_client: redis.Redis, key: str) -> None:
    results: list[Any] = []
    barrier = threading.Barrier(16)

    def ask() -> None:
        barrier.wait()
        # Celery opens a connection to the result backend for each thread that wants a result.
        results.append(tasks.until_executed.apply_async((key,), ignore_result=True))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(str(result.outcome) for result in results) == ["accepted", *["suppressed"] * 15]
    assert len({result.id for result in results}) == 1
    assert state(results[0], NAME) == [(results[0].id, "W")]
