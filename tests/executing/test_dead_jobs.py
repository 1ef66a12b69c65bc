"""Jobs that die: rejected, put off or started too often; who waits is told, and they can be sent again."""

from __future__ import annotations

import pytest
from celery import chord
from celery.exceptions import TimeLimitExceeded

from django_jobdedup import JobDead
from django_jobdedup.dead import delete, requeue
from django_jobdedup.stored_call.codec import decode
from tests.dispatching.looking import holders
from tests.jobs.tasks import JobError
from tests.rig.waiting import wait_for

from . import strategy_tasks as tasks
from .conftest import new_key, running
from .place import Place

pytestmark = [pytest.mark.worker, pytest.mark.timeout(90)]


def test_a_rejected_start_is_a_dead_job_and_a_failure(place: Place) -> None:
    key, first = running(place, tasks.rejecting)
    second = tasks.rejecting.apply_async((key, 2), link_error=tasks.told.s(key))
    with pytest.raises(
        JobDead, match=rf"rejecting is dead: rejected: job {first.id} holds its lock"
    ) as caught:
        second.get(timeout=10)
    assert (caught.value.task_id, caught.value.reason) == (
        second.id,
        f"rejected: job {first.id} holds its lock",
    )
    row = place.dead()[second.id]
    assert (row.state, row.name, row.reason) == ("dead", tasks.rejecting.name, caught.value.reason)
    wait_for(lambda: place.values(f"{key}-told"), 10)
    place.let_end(key)
    assert first.get(timeout=10) == 1
    assert place.values(key) == [1]


def test_a_rejected_member_fails_its_chord_loudly(place: Place) -> None:
    """Case U40: the strict strategy hides nothing: the chord fails, and its error callback is called."""
    key, first = running(place, tasks.rejecting)
    body = tasks.summed.s(key).on_error(tasks.told.s(key))
    done = chord([tasks.rejecting.s(key, 2), tasks.own_way.s(f"{key}-other", 1)], body).apply_async()
    with pytest.raises(JobDead, match=f"rejected: job {first.id} holds its lock"):
        done.get(timeout=10)
    wait_for(lambda: place.values(f"{key}-told"), 10)
    wait_for(lambda: done.state == "FAILURE", 5)
    assert place.values(f"{key}-summed") == []
    place.let_end(key)
    first.get(timeout=10)


def test_a_dead_job_that_is_sent_again_is_a_new_job(place: Place) -> None:
    key, first = running(place, tasks.rejecting)
    second = tasks.rejecting.apply_async((key, 2), headers={"traceparent": "00-1"}, expires=600)
    with pytest.raises(JobDead):
        second.get(timeout=10)
    place.let_end(key)
    first.get(timeout=10)
    row = place.dead()[second.id]
    again = requeue(row.pk, using=place.engine.alias)
    assert again.id != second.id
    assert again.get(timeout=10) == 2
    assert second.id not in place.dead()
    row.refresh_from_db()
    assert (row.state, row.reason, row.mark_by) == ("superseded", f"sent again as {again.id}", again.id)
    with pytest.raises(LookupError, match=f"There is no dead job {row.pk}"):
        requeue(row.pk, using=place.engine.alias)
    assert place.values(key) == [1, 2]


def test_a_dead_job_keeps_the_newest_arguments_of_those_that_joined_it(place: Place) -> None:
    key, first = running(place, tasks.rejecting_reruns)
    second = tasks.rejecting_reruns.apply_async((key, 2), countdown=0.7, headers={"trace": "own"})
    third = tasks.rejecting_reruns.apply_async((key, 3), countdown=0.7, headers={"trace": "other"})
    assert third.id == second.id
    with pytest.raises(JobDead):
        second.get(timeout=10)
    place.let_end(key)
    first.get(timeout=10)
    row = place.dead()[second.id]
    call, _ = decode(bytes(row.call), accept={"application/json"})
    assert (call.args, call.options["headers"]["trace"]) == ((key, 3), "own")
    again = requeue(row.pk, using=place.engine.alias)
    assert again.get(timeout=10) == 3


def test_a_job_that_was_put_off_too_often_is_dead(place: Place) -> None:
    key, first = running(place, tasks.patient_twice)
    second = tasks.patient_twice.delay(key, 2)
    with pytest.raises(JobDead, match=f"put off 2 times: job {first.id} holds its lock"):
        second.get(timeout=10)
    row = place.dead()[second.id]
    assert delete(row.pk, using=place.engine.alias) is True
    assert delete(row.pk, using=place.engine.alias) is False
    assert second.id not in place.dead()
    place.let_end(key)
    first.get(timeout=10)


def test_a_task_that_kills_its_worker_starts_three_times_and_is_dead(place: Place) -> None:
    """Case U04: with a requeue for lost processes nothing else would stop it.

    Without one the key is free after the first loss: ``endings/rows.py``, "its process is killed".
    """
    key = new_key()
    first = tasks.poisonous.apply_async((key, 1), link_error=tasks.told.s(key))
    with pytest.raises(JobDead, match="started 3 times without an end"):
        first.get(timeout=30)
    assert place.values(key) == [1, 1, 1]
    assert first.id in place.dead()
    wait_for(lambda: place.values(f"{key}-told"), 10)
    assert tasks.poisonous.delay(key, 2, healthy=True).get(timeout=10) == 2
    place.wait_until_free()


def test_keep_on_failure_keeps_the_lock_over_the_hard_time_limit(place: Place) -> None:
    """A failure that no body saw is one as well."""
    key = new_key()
    first = tasks.kept_over_its_limit.delay(key, 1)
    with pytest.raises(TimeLimitExceeded):
        first.get(timeout=10)
    name = tasks.kept_over_its_limit.name
    wait_for(lambda: [each.state for each in holders(first, name)] == ["K"], 5)
    second = tasks.kept_over_its_limit.delay(key, 2)
    assert (second.outcome, second.id) == ("suppressed", first.id)


def test_retries_have_a_bound_of_their_own(place: Place) -> None:
    """Six attempts end each in a retry, the last as a failure: none of them is a start without an end."""
    key = new_key()
    with pytest.raises(JobError):
        tasks.retried_too_often.delay(key).get(timeout=20)
    assert len(place.values(key)) == 6
