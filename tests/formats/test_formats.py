"""Mixed versions: format 1 is honoured, what is newer is left alone, a rename keeps one lock (case U49)."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
import redis

from django_jobdedup import peek
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.executing.reception import _warn_of_newer
from django_jobdedup.header import FORMAT, HEADER, Header, is_newer
from django_jobdedup.outcomes import How
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token
from django_jobdedup.stores.results import Acquired, Busy, Claimed, Done, Held, Released
from testproject.celery import app
from tests.dispatching.looking import holders_of, ids, locks, messages
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import moved_from, moved_to
from .golden import FILE, FINGERPRINT, HEADERS, SHARD, STATES, names, play, values

GOLDEN: dict[str, Any] = json.loads(FILE.read_text())
REF = Ref(SHARD, FINGERPRINT)
LATER = FORMAT + 1


# Headers


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_of_format_1_reads_as_it_was_meant(name: str) -> None:
    assert Header.decode(GOLDEN["headers"][name]) == HEADERS[name]


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_is_written_in_format_1(name: str) -> None:
    assert HEADERS[name].encode() == GOLDEN["headers"][name]


def test_a_later_format_is_known_as_such() -> None:
    assert is_newer({"v": LATER, "id": "x"})
    for other in (GOLDEN["headers"]["usual"], {}, None, {"v": "2"}, {"v": True}, {"v": 0}):
        assert not is_newer(other)


# Records


@pytest.fixture
def put(world: Environment, redis_client: redis.Redis) -> Any:
    """Put a golden record into this world, as if a process of format 1 had written it."""
    raw = redis.Redis.from_url(world.redis_url)

    def write(state: str) -> str:
        for what, name in names(world.namespace, state).items():
            raw.delete(name)
            if what in GOLDEN["records"][state]:
                raw.set(name, bytes.fromhex(GOLDEN["records"][state][what]), ex=600)
        return f"id-{state}"

    yield write
    for state in STATES:
        raw.delete(*names(world.namespace, state).values())
    raw.close()


@pytest.mark.parametrize("state", ["pending", "waiting", "running", "kept", "handed over"])
def test_a_record_of_format_1_refuses_an_equal_call(put: Any, state: str) -> None:
    id = put(state)
    answer = stores["default"].acquire(Acquire(REF, "newcomer", counts="PWRK"))
    assert isinstance(answer, Held)
    assert answer.id == id
    assert answer.state == {"pending": "P", "running": "R", "kept": "K"}.get(state, "W")


@pytest.mark.parametrize("state", ["pending", "waiting", "handed over"])
def test_a_record_of_format_1_is_claimed_and_freed_by_its_own_message(put: Any, state: str) -> None:
    id, store = put(state), stores["default"]
    n = 1 if state == "handed over" else 0
    assert isinstance(store.claim(Claim(REF, id, n, "mine")), Claimed)
    assert store.finish(Finish(Token(REF, id, "mine"), n, How.RELEASE)) == Released()
    assert isinstance(store.acquire(Acquire(REF, "newcomer")), Acquired)


def test_a_running_holder_of_format_1_keeps_the_gate_and_ends_with_its_nonce(put: Any) -> None:
    id, store = put("running"), stores["default"]
    assert isinstance(store.claim(Claim(REF, "other", 0, "other's")), Busy)
    assert store.finish(Finish(Token(REF, id, "nonce-1"), 0, How.RELEASE)) == Released()


@pytest.mark.parametrize("state", ["kept", "ended"])
def test_a_marker_of_format_1_stops_a_copy(put: Any, state: str) -> None:
    id = put(state)
    assert isinstance(stores["default"].claim(Claim(REF, id, 0, "again")), Done)


@pytest.mark.parametrize("state", STATES)
def test_records_are_written_in_format_1(world: Environment, put: Any, state: str) -> None:
    """Field by field, but for the moments in them."""
    with redis.Redis.from_url(world.redis_url) as raw:
        raw.delete(*names(world.namespace, state).values())
        play(stores["default"], state)
        found = values(raw, world.namespace, state)
    golden = GOLDEN["records"][state]
    assert found.keys() == golden.keys()
    for what, value in found.items():
        assert _plain(value) == _plain(golden[what])


def _plain(value: str) -> Any:
    def without_moments(each: Any) -> Any:
        if isinstance(each, list):
            return [without_moments(one) for one in each]
        return "a moment" if type(each) in (int, float) and each > 1e6 else each

    return without_moments(msgpack.unpackb(bytes.fromhex(value)))


# A message of a later version


@pytest.mark.worker
def test_a_message_of_a_later_format_runs_without_a_lock_and_says_so(
    world: Environment, diary: Journal, redis_client: redis.Redis, tmp_path: Any, key: str
) -> None:
    before = set(locks(redis_client, world.namespace))
    header = {"v": LATER, "id": f"mine-{key}", "unheard": ["of"]}
    with Worker(world, tmp_path, queues=[key]).wait_until_ready() as node:
        options = {"queue": key, "task_id": f"mine-{key}", "headers": {HEADER: header}}
        result = app.send_task(tasks.until_executed.name, (key,), {"seconds": 0.5}, **options)
        assert result.get(timeout=15) == key
        assert set(locks(redis_client, world.namespace)) <= before
        assert "locked by a later version" in node.log


def test_an_id_that_is_published_again_keeps_the_later_header(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    header = {"v": LATER, "id": f"mine-{key}", "unheard": ["of"]}
    tasks.until_executed.apply_async((key,), queue=key, task_id=f"mine-{key}", headers={HEADER: header})
    (message,) = messages(redis_client, world.namespace, key)
    assert message["headers"][HEADER] == header
    assert peek(tasks.until_executed, key) is None
    _warn_of_newer.cache_clear()


# A rename


def test_two_names_with_one_lock_name_are_one_lock(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    old = moved_from.settle.apply_async((key,), queue=key)
    new = moved_to.settle_all.apply_async((key,), {"note": "more"}, queue=key)
    assert (new.id, new.fingerprint, new.duplicate) == (old.id, old.fingerprint, True)
    assert ids(redis_client, world.namespace, key) == [old.id]


@pytest.mark.worker
def test_workers_of_both_versions_run_each_key_once_and_leave_nothing(
    world: Environment, diary: Journal, redis_client: redis.Redis, tmp_path: Any, key: str
) -> None:
    """Old and new senders call; each worker knows its own name only, on a queue of its own."""
    before = set(locks(redis_client, world.namespace))
    old = world.having(celery={"imports": ["tests.formats.moved_from"]})
    new = world.having(celery={"imports": ["tests.formats.moved_to"]})
    with (
        Worker(old, tmp_path, queues=[f"{key}-old"]).wait_until_ready(),
        Worker(new, tmp_path, queues=[f"{key}-new"]).wait_until_ready(),
    ):
        done = []
        for number in range(6):
            which = (moved_from.settle, "old"), (moved_to.settle_all, "new")
            for task, side in which if number % 2 else which[::-1]:
                done.append(task.apply_async((f"{key}-{number}",), {"seconds": 1.0}, queue=f"{key}-{side}"))
        assert [each.duplicate for each in done] == [False, True] * 6
        assert [each.get(timeout=20) for each in done[:4]] == ["new", "new", "old", "old"]
        for each in done:
            each.get(timeout=20)
    for number in range(6):
        assert len(diary.runs(f"{key}-{number}")) == 1
    wait_for(lambda: set(locks(redis_client, world.namespace)) <= before, 10, what="nothing is left")


@pytest.mark.worker
def test_a_message_under_a_name_that_is_gone_frees_its_lock(
    world: Environment, diary: Journal, redis_client: redis.Redis, tmp_path: Any, key: str
) -> None:
    """The worker knows the new name only."""
    old = moved_from.settle.apply_async((key,), queue=key)
    confirmer.flush()
    new = world.having(celery={"imports": ["tests.formats.moved_to"]})
    with Worker(new, tmp_path, queues=[key]).wait_until_ready():
        wait_for(lambda: peek(moved_to.settle_all, key) is None, 10, what="the old lock is free")
        again = moved_to.settle_all.apply_async((key,), queue=key)
        assert again.outcome == "accepted"
        assert again.get(timeout=15) == "new"
    assert [run.id for run in diary.runs(key)] == [again.id]
    assert holders_of(old.fingerprint, "tests.settle") == ()


# A policy that is gone


@pytest.mark.worker
def test_a_message_whose_policy_was_switched_off_frees_its_lock_at_its_end(
    world: Environment, diary: Journal, redis_client: redis.Redis, tmp_path: Any, key: str
) -> None:
    before = set(locks(redis_client, world.namespace))
    off = {"JOBDEDUP_TASKS": {tasks.until_executed.name: {"unique": False}}}
    result = tasks.until_executed.apply_async((key,), {"seconds": 1.0}, queue=key)
    with Worker(world.having(settings=off), tmp_path, queues=[key]).wait_until_ready():
        wait_for(lambda: diary.runs(key), 10, what="the start")
        assert tasks.until_executed.apply_async((key,), queue=key).id == result.id, "held while it runs"
        result.get(timeout=15)
        wait_for(lambda: set(locks(redis_client, world.namespace)) <= before, 10, what="it is free")


def test_a_lock_whose_message_was_taken_away_lapses_by_its_ttl(world: Environment, key: str) -> None:
    tasks.until_executed.apply_async((key,), queue=key, unique={"ttl": 0.5})
    with app.connection_for_write() as connection:
        connection.default_channel.queue_purge(key)
    wait_for(lambda: peek(tasks.until_executed, key) is None, 5, what="the lapse")
    assert tasks.until_executed.apply_async((key,), queue=key).outcome == "accepted"
