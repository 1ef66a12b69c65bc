"""What one look decides: every state of the job that is followed, over real stores and a real backend."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from celery import states

from django_jobdedup import JobLost, Suppressed, WinnerFailed
from django_jobdedup.call import Execution
from django_jobdedup.executing import following, winner
from django_jobdedup.executing.following import Later, Taken, follow
from django_jobdedup.header import LIFE, Header, Knobs
from django_jobdedup.outcomes import How, Start
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token, Withdraw
from django_jobdedup.stores.results import Acquired, Claimed, Held
from testproject.celery import app
from tests.jobs.tasks import JobError
from tests.rig.engines import Engines
from tests.rig.environment import Environment
from tests.rig.waiting import wait_for

from . import tasks

# Celery's own call, against a newer redis-py.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

STORES = ("redis", "memory", "database")


@pytest.fixture(params=STORES)
def scene(
    request: pytest.FixtureRequest, celery_env: Environment, settings: Any, engines: Engines
) -> Iterator[Scene]:
    """A follower of job ``winner`` on each store."""
    with contextlib.ExitStack() as stack:
        if request.param == "memory":
            settings.JOBDEDUP_STORES = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}
        elif request.param == "database":
            settings.JOBDEDUP_STORES = stack.enter_context(engines.open("sqlite_wal")).stores
        winner.forget()
        yield Scene()


class Scene:
    """One lock, the job that holds it, and another that follows that."""

    def __init__(self) -> None:
        self.ref = Ref(0, secrets.token_hex(32))
        self.winner = secrets.token_hex(8)
        self.knobs = Knobs(name="tests.scene", lease=5.0)

    @property
    def store(self) -> Any:
        return stores["default"]

    def header(self, **more: Any) -> Header:
        id = more.pop("id", "follower")
        locks = ((self.ref.fingerprint, self.knobs),)
        return Header(f"{self.winner}-{id}", 0, locks, follow=self.winner, **more)

    def look(self, **more: Any) -> Any:
        task = more.pop("task", tasks.follow)
        header = self.header(**more)
        return follow(Execution(task.name, header.id, header, "nonce", task_object=task))

    def hold(self, id: str = "", **more: Any) -> None:
        request = Acquire(self.ref, id or self.winner, name="tests.scene", **{"received": True, **more})
        assert isinstance(self.store.acquire(request), Acquired)

    def run(self, id: str = "", lease: float = 5.0) -> None:
        claim = Claim(self.ref, id or self.winner, 0, "nonce-1", lease=lease, name="tests.scene")
        assert isinstance(self.store.claim(claim), Claimed)

    def end(self, how: How = How.RELEASE) -> None:
        token = Token(self.ref, self.winner, "nonce-1")
        self.store.finish(Finish(token, 0, how, 60.0, "tests.scene"))

    def result(self, value: Any, state: str = states.SUCCESS) -> None:
        app.backend.store_result(self.winner, value, state)


def test_a_job_that_waits_or_runs_is_looked_after_again_and_ever_more_seldom(scene: Scene) -> None:
    scene.hold()
    pauses = [scene.look(put_offs=number) for number in (0, 5, 50)]
    assert [type(each) for each in pauses] == [Later] * 3
    assert 0.1 < pauses[0].after < 0.3 < pauses[1].after < 3 < pauses[2].after < 45
    scene.run()
    again = scene.look(put_offs=0, gone_at=time.time())
    assert isinstance(again, Later)
    assert (again.by, again.counts, again.execution.header.gone_at) == (scene.winner, True, 0.0)


def test_of_a_crowd_each_looks_more_seldom(scene: Scene) -> None:
    scene.hold()
    pauses = [scene.look(id=str(number)).after for number in range(200)]
    assert pauses[0] < 0.3
    assert 6 < pauses[-1] < 10


def test_the_result_of_an_earlier_life_is_not_taken(scene: Scene) -> None:
    scene.result("old")
    scene.hold()
    assert isinstance(scene.look(), Later)


def test_a_job_that_is_due_much_later_is_looked_after_then(scene: Scene) -> None:
    scene.hold(due_in=600.0)
    later = scene.look(put_offs=3)
    assert 590 < later.after < 605
    assert not later.counts


@pytest.mark.parametrize("how", [How.RELEASE, How.KEEP])
def test_its_value_is_taken(scene: Scene, how: How) -> None:
    scene.hold()
    scene.run()
    scene.end(how)
    scene.result(["value", None])
    assert scene.look() == Taken(Start.FOLLOWED, scene.winner, ["value", None])


def test_its_error_is_taken(scene: Scene) -> None:
    scene.result(JobError("broken"), states.FAILURE)
    with pytest.raises(JobError, match="broken"):
        scene.look().give()


@pytest.mark.parametrize("error", winner.MEANT_OTHERWISE)
def test_an_error_that_means_more_to_celery_is_wrapped(error: type[Exception]) -> None:
    found = winner._raisable("the-id", error("why"))
    assert isinstance(found, WinnerFailed)
    assert found.task_id == "the-id"
    assert error.__name__ in str(found)


@pytest.mark.parametrize("how", [How.RELEASE, How.KEEP])
def test_a_result_that_is_not_there_yet_is_waited_for_and_then_given_up(scene: Scene, how: How) -> None:
    """It is stored after the lock is free; or it was never stored, or has expired."""
    scene.hold()
    scene.run()
    scene.end(how)
    first = scene.look()
    assert isinstance(first, Later)
    assert first.after < 0.5
    gone_at = first.execution.header.gone_at
    assert gone_at == pytest.approx(time.time(), abs=5)
    longer = scene.look(gone_at=gone_at - 10)
    assert 3 < longer.after < 8
    assert longer.execution.header.gone_at == gone_at - 10
    last = scene.look(gone_at=gone_at - following.PATIENCE - 1)
    assert last == Taken(Start.SUPPRESSED, scene.winner, Suppressed(scene.winner))


def test_without_holder_marker_and_result_the_follower_does_the_work(scene: Scene) -> None:
    found = scene.look()
    assert isinstance(found, Execution)
    assert (found.header.follow, found.header.put_offs) == ("", 0)
    record = scene.store.inspect(scene.ref)
    assert [(holder.id, holder.state) for holder in record.holders] == [(found.id, "W")]


@pytest.mark.parametrize("state", ["revoked", "lost"])
def test_a_job_that_was_revoked_or_lost_has_no_outcome_to_take(scene: Scene, state: str) -> None:
    scene.hold()
    if state == "revoked":
        scene.store.withdraw(Withdraw(scene.ref, scene.winner, waiting=True))
        scene.result(None, states.REVOKED)
    else:
        scene.run(lease=0.01)
        time.sleep(0.02)
        scene.result(JobLost("lost", scene.winner), states.FAILURE)
    assert isinstance(scene.look(), Execution)


def test_of_many_followers_one_does_the_work_and_the_others_find_it_after_its_end_too(scene: Scene) -> None:
    heir = scene.look(id="heir")
    assert isinstance(heir, Execution)
    during = scene.look(id="second")
    assert isinstance(during, Later)
    assert (during.by, during.execution.header.follow) == (heir.id, heir.id)
    scene.run(heir.id)
    scene.store.finish(Finish(Token(scene.ref, heir.id, "nonce-1"), 0, How.RELEASE, 0.001, "tests.scene"))
    app.backend.store_result(heir.id, "of the heir", states.SUCCESS)
    taken = Taken(Start.FOLLOWED, heir.id, "of the heir")
    wait_for(lambda: scene.look(id="third") == taken, 5)  # what was seen last is believed for a moment


def test_the_heir_goes_on_when_its_message_comes_again(scene: Scene) -> None:
    heir = scene.look(id="heir")
    scene.run(heir.id)
    again = scene.look(id="heir")
    assert isinstance(again, Execution)
    assert again.header.follow == ""


def test_a_new_holder_is_followed(scene: Scene) -> None:
    scene.hold("another")
    later = scene.look()
    assert isinstance(later, Later)
    assert later.execution.header.follow == "another"
    answer = scene.store.acquire(Acquire(scene.ref, "one-more"))
    assert isinstance(answer, Held)
    assert answer.id == "another"


def test_a_job_that_was_superseded_is_followed_to_the_one_that_took_its_place(scene: Scene) -> None:
    scene.hold(due_in=100.0)
    scene.hold("newer", on_waiting="over")
    later = scene.look()
    assert (later.by, later.execution.header.follow) == ("newer", "newer")
    assert 0.1 < later.after < 0.3


def test_a_job_with_a_life_has_a_stand_in_of_its_own() -> None:
    assert winner.stand_in_for("id") == f"id{LIFE}+"
    assert winner.stand_in_for(f"id{LIFE}ab") == f"id{LIFE}ab+"


def test_a_mark_ends_with_nothing_and_asks_nobody(scene: Scene) -> None:
    header = replace(scene.header(), follow="", mark="holder")
    found = follow(Execution(tasks.mark.name, header.id, header, "nonce", task_object=tasks.mark))
    assert found == Taken(Start.SUPPRESSED, "holder", None)


def test_a_worker_that_keeps_no_results_runs_the_body(scene: Scene) -> None:
    scene.hold()
    found = scene.look(task=tasks.forgetful)
    assert isinstance(found, Execution)
    assert found.header.follow == ""


def test_another_follower_has_just_seen_that_it_runs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.hold()
    asked: list[str] = []
    real = type(scene.store).inspect
    monkeypatch.setattr(
        type(scene.store), "inspect", lambda self, ref, id="": asked.append(id) or real(self, ref, id)
    )
    for number in range(10):
        assert isinstance(scene.look(id=str(number), put_offs=20), Later)
    assert asked == [scene.winner]


def test_an_older_worker_passes_over_what_it_does_not_know() -> None:
    """To it a follower is a job of its own: it runs the body, behind the gate."""
    header = Header("id", 3, (("f" * 64, Knobs()),), follow="winner", gone_at=5.0, put_offs=2)
    wire = header.encode()
    assert Header.decode(wire) == header
    assert {"follow": "winner", "gone": 5.0}.items() <= wire.items()
    plain = Header("id", 3, (("f" * 64, Knobs()),), put_offs=2)
    assert wire.keys() - plain.encode().keys() == {"follow", "gone"}
    assert wire["v"] == plain.encode()["v"]
    assert header.on_its_own() == replace(plain, put_offs=0)


def test_a_worker_that_observes_runs_the_body(scene: Scene, settings: Any) -> None:
    scene.hold()
    settings.JOBDEDUP_MODE = "observe"
    assert isinstance(scene.look(), Execution)
