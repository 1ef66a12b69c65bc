"""What a call does with the job that waits: rerun joins it, replace and keep_soonest come over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import redis
from django.test import override_settings
from kombu.exceptions import OperationalError

from django_jobdedup import DuplicateDispatch, Reschedule
from django_jobdedup.conf import conf
from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.fingerprint.digest import shard_of
from django_jobdedup.header import HEADER, Header
from django_jobdedup.lock_types.base import LockType
from django_jobdedup.middleware.keeping import accepted_by
from django_jobdedup.middleware.merging import LARGEST_IN_MEMORY
from django_jobdedup.outcomes import Block, How, Refuse, Suppress
from django_jobdedup.recovery.overdue import publish_overdue
from django_jobdedup.stored_call.codec import decode
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Claim, Finish, Token
from django_jobdedup.stores.results import Claimed, Overdue, Reaped, Superseded
from django_jobdedup.strategies.base import Strategy
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment
from tests.rig.waiting import wait_for

from .looking import holders, ids, locks, messages, state

TASK = tasks.until_executed
RERUN = {"on_conflict": "rerun"}
# A third of it is the longest pause.
WORLD = {"celery": {"broker_transport_options": {"visibility_timeout": 30}}}


def call(key: str, value: Any = 0, how: str = "rerun", **options: Any) -> Any:
    """Dispatch to a queue that nobody attends; ``value`` is no part of the key."""
    unique = {"on_conflict": how, **options.pop("unique", {})}
    return TASK.apply_async((key, value), queue=key, unique=unique, **options)


def ref_of(result: Any) -> Ref:
    return Ref(shard_of(TASK.name, conf.SHARDS), result.fingerprint)


def stored(result: Any) -> list[Any]:
    """Give the value of the call that is stored with each holder of a lock."""
    calls = [decode(holder.args, accept=accepted_by(app))[0] for holder in holders(result, TASK.name)]
    return [call.args[1] for call in calls]


def start(result: Any) -> Claimed:
    """Begin the job with this id, as a worker would."""
    claimed = stores["default"].claim(Claim(ref_of(result), result.id, 0, "nonce", lease=60.0))
    assert isinstance(claimed, Claimed)
    return claimed


def end(result: Any, how: How = How.RELEASE) -> None:
    stores["default"].finish(Finish(Token(ref_of(result), result.id, "nonce"), 0, how))


# rerun


def test_while_one_waits_the_newest_arguments_win_and_no_second_message_goes_out(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first, second, third = (call(key, value) for value in (1, 2, 3))
    assert (first.outcome, first.duplicate) == ("accepted", False)
    for each in (second, third):
        assert (each.outcome, each.duplicate, each.id) == ("rerun", True, first.id)
        assert each.fingerprint == first.fingerprint
    assert ids(redis_client, world.namespace, key) == [first.id]
    assert stored(first) == [3]
    (holder,) = holders(first, TASK.name)
    assert (holder.state, holder.merged) == ("W", 2)


def test_while_one_runs_a_message_of_its_own_waits_and_later_calls_join_that(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first = call(key, 1)
    start(first)
    second, third = call(key, 2), call(key, 3)
    assert (second.outcome, second.id != first.id) == ("accepted", True)
    assert (third.outcome, third.id) == ("rerun", second.id)
    assert ids(redis_client, world.namespace, key) == [first.id, second.id]
    assert state(first, TASK.name) == [(first.id, "R"), (second.id, "W")]
    assert stored(first) == [1, 3]


def test_a_body_that_started_is_given_the_newest_arguments(world: Environment, key: str) -> None:
    first = call(key, 1)
    call(key, 2)
    args = start(first).args
    assert args is not None
    assert decode(args, accept=accepted_by(app))[0].args == (key, 2)


def test_a_waiting_job_whose_message_is_overdue_is_published_again_with_the_newest_arguments(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first = call(key, 1, unique={"ttl": 0.3})
    holders(first, TASK.name)  # confirmed
    redis_client.delete(f"{world.namespace}:{key}")
    wait_for(lambda: overdue_at(first) < now(first), 5)
    second = call(key, 2)
    assert (second.outcome, second.id) == ("rerun", first.id)
    (message,) = messages(redis_client, world.namespace, key)
    assert (message["headers"]["id"], message["arguments"]) == (first.id, [key, 2])
    header = Header.decode(message["headers"][HEADER])
    assert header is not None
    assert (header.id, header.n, header.token) == (first.id, 0, holders(first, TASK.name)[0].id)
    assert state(first, TASK.name) == [(first.id, "W")]
    assert call(key, 3).outcome == "rerun"
    assert len(ids(redis_client, world.namespace, key)) == 1, "it waits again"


def overdue_at(result: Any) -> float:
    return holders(result, TASK.name)[0].until


def now(result: Any) -> float:
    record = stores["default"].inspect(ref_of(result))
    return float(record.now)  # type: ignore[union-attr]


def reaped(result: Any) -> list[Overdue]:
    """Let the reaper look, and give what is overdue under the lock behind a result."""
    found = stores["default"].reap(ref_of(result).shard)
    assert isinstance(found, Reaped)
    return [each for each in found.overdue if each.ref == ref_of(result)]


def test_maintenance_publishes_what_is_overdue_without_a_call(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first = call(key, 1, unique={"ttl": 0.3})
    call(key, 2, unique={"ttl": 0.3})
    holders(first, TASK.name)
    redis_client.delete(f"{world.namespace}:{key}")
    found = wait_for(lambda: reaped(first), 5)
    assert publish_overdue(stores["default"], found) == {"overdue": 1}
    (message,) = messages(redis_client, world.namespace, key)
    assert (message["headers"]["id"], message["arguments"]) == (first.id, [key, 2])
    assert state(first, TASK.name) == [(first.id, "W")]


def test_a_call_that_may_start_sooner_brings_the_waiting_job_forward(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first = call(key, 1, countdown=500)
    second = call(key, 2, countdown=9)
    later = call(key, 3, countdown=400)
    assert {each.id for each in (second, later)} == {first.id}
    far, near = messages(redis_client, world.namespace, key)
    assert far["headers"]["id"] == near["headers"]["id"] == first.id
    assert near["headers"]["eta"] < far["headers"]["eta"]
    header = Header.decode(near["headers"][HEADER])
    assert header is not None
    assert 490 < header.copies <= 500, "the end is remembered until the far one has come"
    assert stored(first) == [3]


def test_the_call_of_the_job_that_waits_is_stored_with_the_arguments_of_the_newest(
    world: Environment, key: str
) -> None:
    first = call(key, 1, priority=3, headers={"traceparent": "00-1"}, expires=600)
    call(key, 2, priority=6, headers={"traceparent": "00-2"}, shadow="other", time_limit=7)
    (holder,) = holders(first, TASK.name)
    assert holder.args is not None
    kept = decode(holder.args, accept=accepted_by(app))[0]
    assert (kept.id, kept.task, kept.args) == (first.id, TASK.name, (key, 2))
    assert (kept.options["priority"], kept.options["queue"]) == (3, key)
    assert kept.options["headers"]["traceparent"] == "00-1"
    assert "T" in kept.options["expires"]
    assert not {kept.options.get(name) for name in ("shadow", "time_limit")} - {None}


def test_a_copy_is_the_job_that_waits_with_newer_arguments(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    """Brought forward, its workflow, its queue and its expiry go with it."""
    first = call(
        key, 1, countdown=500, expires=900, headers={"traceparent": "00-1"},
        link=TASK.si("linked"), chain=[TASK.si("next")],
    )  # fmt: skip
    second = TASK.apply_async(
        (key, 2), queue=f"{key}-other", countdown=5, expires=60, time_limit=7, shadow="other",
        unique={"on_conflict": "rerun"},
    )  # fmt: skip
    assert (second.outcome, second.id) == ("rerun", first.id)
    assert messages(redis_client, world.namespace, f"{key}-other") == []
    raw = messages(redis_client, world.namespace, key)
    far, near = sorted(raw, key=lambda message: message["headers"]["eta"], reverse=True)
    assert (far["arguments"], near["arguments"]) == ([key, 1], [key, 2])
    same = ("id", "root_id", "parent_id", "traceparent", "retries", "timelimit", "shadow")
    assert [near["headers"][name] for name in same] == [far["headers"][name] for name in same]
    assert near["embed"] == far["embed"]
    assert near["embed"]["chain"]
    assert near["embed"]["callbacks"]
    assert 0 < seconds_to(near["headers"]["eta"]) <= 5
    assert 800 < seconds_to(near["headers"]["expires"]) <= 900


def seconds_to(instant: str) -> float:
    return float((app.now().fromisoformat(instant) - app.now()).total_seconds())


def test_a_job_of_which_no_call_is_stored_comes_by_itself(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    """Its policy did not merge when it was accepted; nobody else knows its chain."""
    first = call(key, 1, "skip", countdown=500, link=TASK.si("linked"))
    second = call(key, 2)
    assert (second.outcome, second.id) == ("rerun", first.id)
    assert ids(redis_client, world.namespace, key) == [first.id], "a copy would lose the chain"
    assert stored(first) == [2], "it runs with the newest arguments all the same"


@pytest.mark.parametrize("by", ["the next call", "maintenance"])
def test_of_such_a_job_that_is_overdue_a_call_that_joined_is_published_in_its_place(
    world: Environment, redis_client: redis.Redis, key: str, by: str
) -> None:
    """Without what is the newcomer's own: its expiry must not end the accepted job."""
    first = call(key, 1, "skip", unique={"ttl": 2})
    second = call(key, 2, expires=600)
    assert (second.outcome, second.id) == ("rerun", first.id)
    holders(first, TASK.name)  # confirmed
    redis_client.delete(f"{world.namespace}:{key}")
    wait_for(lambda: overdue_at(first) < now(first), 5)
    if by == "maintenance":
        assert publish_overdue(stores["default"], wait_for(lambda: reaped(first), 5)) == {"overdue": 1}
    else:
        call(key, 2, expires=600)
    (message,) = messages(redis_client, world.namespace, key)
    assert (message["headers"]["id"], message["arguments"]) == (first.id, [key, 2])
    assert message["headers"]["expires"] is None


@pytest.mark.parametrize("wrong", ["x" * LARGEST_IN_MEMORY, object()], ids=["large", "no form"])
def test_a_call_that_cannot_be_stored_is_refused_before_anything_is_locked(
    world: Environment, redis_client: redis.Redis, key: str, wrong: object
) -> None:
    before = locks(redis_client, world.namespace)
    with pytest.raises(StoredCallError, match=r"until_executed was not queued: its (call takes|argument 2)"):
        call(key, wrong)
    assert locks(redis_client, world.namespace) == before
    assert ids(redis_client, world.namespace, key) == []


def test_a_call_whose_id_somebody_holds_is_published_besides(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first = call(key, 1)
    promised = call(key, 2, task_id=f"given-{key}")
    assert (promised.outcome, promised.id) == ("followed", f"given-{key}")
    assert ids(redis_client, world.namespace, key) == [first.id, promised.id]
    assert stored(first) == [2], "the job that waits runs with its arguments, too"


def test_the_same_given_id_joins_the_job_that_has_it(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first, second = (call(key, value, task_id=f"given-{key}") for value in (1, 2))
    assert (second.outcome, second.id) == ("rerun", first.id)
    assert ids(redis_client, world.namespace, key) == [first.id]
    assert stored(first) == [2]


def test_after_a_kept_end_a_rerun_is_suppressed(world: Environment, key: str) -> None:
    kept = {"lock": "until_expired", "ttl": 60}
    first = call(key, 1, unique=kept)
    start(first)
    second = call(key, 2, unique=kept)
    assert second.outcome == "accepted", "asked while it runs"
    end(first, How.KEEP)
    assert call(key, 3, unique=kept).id == second.id
    stores["default"].claim(Claim(ref_of(first), second.id, 0, "nonce", lease=60.0))
    end(second, How.KEEP)
    late = call(key, 4, unique=kept)
    assert (late.outcome, late.id) == ("suppressed", first.id)


# replace and keep_soonest


def test_the_newcomer_takes_the_waiting_seat_and_the_older_message_follows_it(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    first = call(key, 1, "replace")
    assert state(first, TASK.name) == [(first.id, "W")]
    second = call(key, 2, "replace")
    assert (second.outcome, second.duplicate) == ("accepted", False)
    assert state(first, TASK.name) == [(second.id, "W")]
    assert ids(redis_client, world.namespace, key) == [first.id, second.id], "no queue is searched"
    answer = stores["default"].claim(Claim(ref_of(first), first.id, 0, "nonce"))
    assert answer == Superseded(second.id)


def test_a_running_job_is_followed_not_replaced(world: Environment, key: str) -> None:
    first = call(key, 1, "replace")
    start(first)
    second, third = call(key, 2, "replace"), call(key, 3, "replace")
    assert state(first, TASK.name) == [(first.id, "R"), (third.id, "W")]
    assert {second.outcome, third.outcome} == {"accepted"}


def test_a_newcomer_that_could_not_be_published_replaces_nobody(world: Environment, key: str) -> None:
    first = call(key, 1, "replace")
    with pytest.raises(OperationalError, match="unknown"):
        call(key, 2, "replace", compression="unknown")
    assert state(first, TASK.name) == [(first.id, "W")]


@pytest.mark.parametrize(
    ("due", "outcome"),
    [(100, "accepted"), (900, "suppressed"), (500, "suppressed")],
    ids=["sooner", "later", "as soon"],
)
def test_keep_soonest_keeps_the_job_that_is_due_first(
    world: Environment, key: str, due: float, outcome: str
) -> None:
    first = call(key, 1, "keep_soonest", countdown=500)
    second = call(key, 2, "keep_soonest", countdown=due)
    assert second.outcome == outcome
    winner = second if outcome == "accepted" else first
    assert second.id == winner.id
    assert state(first, TASK.name) == [(winner.id, "W")]


def test_keep_soonest_does_not_wait_beside_a_running_job(world: Environment, key: str) -> None:
    first = call(key, 1, "keep_soonest")
    start(first)
    assert call(key, 2, "keep_soonest").outcome == "suppressed"


# limit


@pytest.mark.parametrize("how", ["skip", "log", "raise"])
def test_with_a_limit_the_call_beyond_it_is_told_the_oldest(world: Environment, key: str, how: str) -> None:
    first, second = (call(key, value, how, unique={"limit": 2}) for value in (1, 2))
    assert (first.outcome, second.outcome) == ("accepted", "accepted")
    if how == "raise":
        with pytest.raises(DuplicateDispatch) as caught:
            call(key, 3, how, unique={"limit": 2})
        assert caught.value.holder_id == first.id
    else:
        third = call(key, 3, how, unique={"limit": 2})
        assert (third.outcome, third.id) == ("suppressed", first.id)


# reschedule


def test_a_long_pause_of_ours_is_cut_to_a_third_of_the_visibility_timeout(
    world: Environment, redis_client: redis.Redis, key: str
) -> None:
    call(key)
    late = TASK.apply_async((key,), queue=key, unique={"on_conflict": Reschedule(after=300)})
    assert late.outcome == "rescheduled"
    _, message = messages(redis_client, world.namespace, key)
    seconds = (app.now().fromisoformat(message["headers"]["eta"]) - app.now()).total_seconds()
    assert 8 < seconds <= 10
    header = Header.decode(message["headers"][HEADER])
    assert header is not None
    assert header.put_offs == 1


# A strategy of a project's own


@dataclass(frozen=True, slots=True)
class Polite(Strategy):
    """Skips, unless it is told to do what it must not."""

    does: str = "skip"

    def decide(self, conflict: Any) -> Any:
        """Decide."""
        if self.does == "fail":
            raise ZeroDivisionError
        return {"skip": Suppress(), "raise": Refuse(), "wait": Block(5, Suppress()), "nothing": None}[
            self.does
        ]


class Over(Polite):
    """Comes over the job that waits."""

    on_waiting = "over"


class OneWaits(LockType):
    """A lock type of a project's own: one waits, any number run."""

    counts = "PW"
    gated = False


@pytest.mark.parametrize("lock", [OneWaits, f"{__name__}.OneWaits"])
def test_a_lock_type_of_ones_own_is_kept_by_the_store(
    world: Environment, redis_client: redis.Redis, key: str, lock: Any
) -> None:
    first, second = (call(key, value, "skip", unique={"lock": lock}) for value in (1, 2))
    assert second.id == first.id
    start(first)
    third = call(key, 3, "skip", unique={"lock": lock})
    assert third.outcome == "accepted"
    header = Header.decode(messages(redis_client, world.namespace, key)[-1]["headers"][HEADER])
    assert header is not None
    assert (header.knobs.lock, header.knobs.counts, header.knobs.gate) == (f"{__name__}.OneWaits", "PW", 0)


def test_a_strategy_of_ones_own_decides(world: Environment, key: str) -> None:
    own: Any = f"{__name__}.Polite"
    first = call(key, 1, own)
    assert call(key, 2, own).id == first.id
    with pytest.raises(DuplicateDispatch):
        call(key, 3, [own, {"does": "raise"}])  # type: ignore[arg-type]
    told = {"JOBDEDUP_TASKS": {TASK.name: {"unique": {"on_conflict": f"{__name__}.Over"}}}}
    with override_settings(**told):
        second = TASK.apply_async((key, 4), queue=key)
    assert second.outcome == "accepted"
    assert state(first, TASK.name) == [(second.id, "W")]


@pytest.mark.parametrize(
    ("does", "error"), [("fail", ZeroDivisionError), ("nothing", TypeError), ("wait", TypeError)]
)
def test_a_strategy_of_ones_own_that_fails_is_the_callers_error_and_publishes_nothing(
    world: Environment, redis_client: redis.Redis, key: str, does: str, error: type[Exception]
) -> None:
    own: Any = [f"{__name__}.Polite", {"does": does}]
    first = call(key, 1, own)
    with pytest.raises(error):
        call(key, 2, own)
    assert ids(redis_client, world.namespace, key) == [first.id]


def test_what_beat_publishes_goes_without_a_lock_when_the_strategy_fails(
    world: Environment, redis_client: redis.Redis, log: pytest.LogCaptureFixture, key: str
) -> None:
    own: Any = [f"{__name__}.Polite", {"does": "fail"}]
    first = call(key, 1, own)
    second = call(key, 2, own, headers={"celery_beat_task": True})
    assert second.outcome == "unprotected"
    assert ids(redis_client, world.namespace, key) == [first.id, second.id]
    assert any("internal error in strategy" in record.getMessage() for record in log.records)
