"""The reaper: what time has freed is swept and told; whoever waits for a lost run is answered."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from celery.result import AsyncResult

from django_jobdedup.exceptions import JobLost
from django_jobdedup.middleware.observing import PREFIX
from django_jobdedup.models import JobIntent
from django_jobdedup.outcomes import How
from django_jobdedup.recovery.duty import Tally, never
from django_jobdedup.recovery.lost_runs import readers
from django_jobdedup.recovery.reaper import reap
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.requests import Finish, Token
from django_jobdedup.stores.results import Unavailable
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis
from tests.rig.engines import Engine
from tests.rig.waiting import wait_for

from .conftest import REF, Locks

OTHER = Ref(9, "e" * 64)

pytestmark = [
    pytest.mark.usefixtures("celery_env"),
    # Celery's own way of storing a result.
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
]


def holders(ref: Ref = REF) -> list[str]:
    record = stores["default"].inspect(ref)
    return [holder.id for holder in record.holders] if record is not None else []


def test_it_sweeps_what_has_lapsed_in_every_shard(memory: MemoryStore, ignored: Locks) -> None:
    ignored.wait("waiting", ttl=100)
    ignored.run("running", OTHER)
    memory.clock.advance(50)

    assert reap(never) == {"lost": 1}
    assert (holders(), holders(OTHER)) == (["waiting"], [])
    memory.clock.advance(50)
    assert reap(never) == {"lapsed": 1}
    assert holders() == []


def test_it_goes_on_behind_a_full_batch(memory: MemoryStore, ignored: Locks) -> None:
    for number in range(250):
        ignored.run(str(number), Ref(3, f"{number:064}"))
    memory.clock.advance(50)

    assert reap(never)["lost"] == 250


def test_it_stops_between_two_batches(memory: MemoryStore, ignored: Locks) -> None:
    for number in range(250):
        ignored.run(str(number), Ref(0, f"{number:064}"))
    memory.clock.advance(50)
    asked = iter([False, True, True, True, True])

    assert reap(lambda: next(asked))["lost"] == 100


def test_it_says_each_lost_run_once(
    memory: MemoryStore, ignored: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    ignored.run("a")
    memory.clock.advance(50)
    with caplog.at_level(logging.INFO, "django_jobdedup"):
        reap(never)
        reap(never)

    (said,) = [record for record in caplog.records if getattr(record, "action", "") == "lost"]
    assert said.task_id == "a"  # type: ignore[attr-defined]
    assert "job a of lock django_jobdedup.maintain was lost: it ran in worker@1" in said.getMessage()


def test_a_store_that_cannot_be_made_keeps_no_other_from_its_upkeep(
    settings: Any, memory: MemoryStore, ignored: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    ignored.run("a")
    memory.clock.advance(50)
    settings.JOBDEDUP_STORES = {"broken": {"BACKEND": "no.such.Store"}, **settings.JOBDEDUP_STORES}
    stores._stores["default"] = memory  # the change has made it anew, and empty

    assert reap(never) == {"unavailable": 1, "lost": 1}
    assert "cannot be imported" in caplog.text


# The waiters of a lost run -------------------------------------------------------------------------


def result(id: str) -> AsyncResult[Any]:
    return AsyncResult(id, app=app)


def test_a_lost_run_gets_job_lost_as_its_result(memory: MemoryStore, locks: Locks) -> None:
    locks.run("a")
    memory.clock.advance(50)

    assert reap(never)["answered"] == 1
    with pytest.raises(JobLost, match="in worker@1 vanished without an ending") as caught:
        result("a").get(timeout=10)
    assert (caught.value.task_id, caught.value.worker) == ("a", "worker@1")


def test_so_does_one_that_a_dispatch_has_swept(memory: MemoryStore, locks: Locks) -> None:
    locks.run("a")
    memory.clock.advance(50)
    locks.wait("b")

    assert reap(never) == {"answered": 1}
    assert isinstance(result("a").result, JobLost)


def test_a_loss_that_is_older_than_the_grace_time_is_old_news(memory: MemoryStore, locks: Locks) -> None:
    memory.clock.advance(-2 * 86_400)
    locks.run("a")
    memory.clock.advance(50)

    assert reap(never) == {"lost": 1}
    assert result("a").state == "PENDING"


def test_two_lives_of_one_id_share_its_result(memory: MemoryStore, locks: Locks) -> None:
    locks.run("a\x1e12345678")
    memory.clock.advance(50)
    reap(never)

    assert isinstance(result("a").result, JobLost)


def test_a_result_that_is_there_stays(memory: MemoryStore, locks: Locks) -> None:
    locks.run("a")
    app.backend.store_result("a", 42, "SUCCESS")
    memory.clock.advance(50)

    assert reap(never) == {"lost": 1}
    assert result("a").get(timeout=5) == 42


def test_a_job_that_runs_again_is_not_given_up(memory: MemoryStore, locks: Locks) -> None:
    """A copy of its message, made by the visibility timeout, has taken the job over."""
    locks.run("a")
    memory.clock.advance(50)
    locks.wait("b")  # sweeps it
    locks.end("b")
    locks.run("a")

    assert reap(never) == {}
    assert result("a").state == "PENDING"


def test_a_job_that_has_ended_meanwhile_is_not_given_up(memory: MemoryStore, locks: Locks) -> None:
    """Its worker was slow, not dead: the result is on its way."""
    locks.run("a")
    memory.clock.advance(50)
    locks.wait("b")  # sweeps it
    locks.end("a")  # not its own any more, but the attempt is marked

    assert reap(never) == {}
    assert result("a").state == "PENDING"


def test_a_retry_that_is_lost_is_told_although_its_first_attempt_has_ended(
    memory: MemoryStore, locks: Locks
) -> None:
    locks.run("a")
    locks.end("a", how=How.HANDOVER)
    app.backend.store_result("a", None, "RETRY")
    locks.run("a", n=1)
    memory.clock.advance(50)

    assert reap(never) == {"lost": 1, "answered": 1}
    assert isinstance(result("a").result, JobLost)


def test_a_retry_that_is_swept_and_ends_after_all_is_not_given_up(memory: MemoryStore, locks: Locks) -> None:
    locks.run("a")
    locks.end("a", how=How.HANDOVER)
    locks.run("a", n=1)
    memory.clock.advance(50)
    locks.wait("b")  # sweeps it
    memory.finish(Finish(Token(REF, "a", "nonce"), 1, How.RELEASE))  # not its own any more

    assert reap(never) == {}
    assert result("a").state == "PENDING"


def test_a_late_run_whose_redelivery_may_come_is_not_given_up(memory: MemoryStore, locks: Locks) -> None:
    locks.run("a", late=100, ttl=1)
    memory.clock.advance(50)

    assert reap(never) == {}
    memory.clock.advance(50)
    assert reap(never) == {"lost": 1, "answered": 1}


def test_ignored_results_stay_ignored(memory: MemoryStore, ignored: Locks) -> None:
    ignored.run("a")
    memory.clock.advance(50)

    assert reap(never) == {"lost": 1}
    assert result("a").state == "PENDING"


def test_a_lost_run_that_was_only_observed_leaves_its_result_to_celery(memory: MemoryStore) -> None:
    """Nothing of ours is seen by whoever waits for it: as it would be without the app."""
    Locks(memory, f"{PREFIX}shop.recompute").run("a")
    memory.clock.advance(50)

    assert reap(never) == {"lost": 1}
    assert result("a").state == "PENDING"


@pytest.mark.parametrize("url", ["disabled", "rpc"])
def test_without_a_backend_that_others_read_nothing_is_stored(
    memory: MemoryStore, locks: Locks, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    locks.run("a")
    memory.clock.advance(50)
    monkeypatch.setattr(type(app), "backend", backend_of(url))

    assert reap(never) == {"lost": 1}


def backend_of(url: str) -> Any:
    from celery.app.backends import by_url

    found, url = by_url(url, app.loader)
    return found(app=app, url=url)


def test_a_backend_that_does_not_answer_is_asked_once_a_pass(
    memory: MemoryStore, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks.run("a")
    locks.run("b", OTHER)
    memory.clock.advance(50)
    with monkeypatch.context() as broken:
        broken.setattr(type(app), "backend", backend_of("redis://127.0.0.1:1/0?socket_connect_timeout=1"))
        assert reap(never) == {"lost": 2, "unavailable": 1}

    assert reap(never) == {"answered": 2}


def test_a_store_that_goes_away_meanwhile_is_asked_again_in_the_next_pass(
    memory: MemoryStore, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks.run("a")
    memory.clock.advance(50)
    with monkeypatch.context() as broken:
        broken.setattr(memory, "inspect", lambda *_: Unavailable("down"))
        assert reap(never) == {"lost": 1, "unavailable": 1}

    assert reap(never) == {"answered": 1}


# The other stores ----------------------------------------------------------------------------------


@pytest.fixture
def redis_store(settings: Any, lock_server: EmbeddedRedis) -> RedisStore:
    """A Redis store on a server of its own."""
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": lock_server.url}
    settings.CACHES = {**settings.CACHES, "jobdedup": cache}
    readers.reset()
    store = stores["default"]
    assert isinstance(store, RedisStore)
    return store


def test_a_lost_run_in_redis_is_told(redis_store: RedisStore) -> None:
    assert_told("a")


def test_a_lost_run_in_a_database_is_told(engine: Engine, settings: Any) -> None:
    settings.JOBDEDUP_STORES = engine.stores
    readers.reset()
    assert_told("a")
    (row,) = JobIntent.objects.using(engine.alias).all()
    assert row.state == "lost"


def assert_told(id: str) -> None:
    """Have a run vanish, and whoever waits for it told."""
    Locks(stores["default"]).run(id, Ref(1, "f" * 64), lease=0.2)
    told = Tally()
    wait_for(lambda: told.update(reap(never)) or told["answered"], 10, what=lambda: f"an answer: {told}")
    assert told == {"lost": 1, "answered": 1}
    assert isinstance(result(id).result, JobLost)
    assert reap(never) == {}
