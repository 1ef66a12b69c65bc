"""A call that joins a waiting job gives it its arguments, and nothing else: workflows, with a real worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, chord

from django_jobdedup import peek
from tests.rig.waiting import wait_for

from . import strategy_tasks as tasks
from .conftest import new_key, running, send_raw
from .place import Place

pytestmark = [pytest.mark.worker, pytest.mark.timeout(90)]

Make = Callable[[str, int, float], Any]

#: What hangs on a job of this key and value, which starts so many seconds later.
FORMS: dict[str, Make] = {
    "chain": lambda key, value, later: chain(
        tasks.rerunning_soon.si(key, value), tasks.told.s(key)
    ).apply_async(countdown=later),
    "link": lambda key, value, later: tasks.rerunning_soon.apply_async(
        (key, value), countdown=later, link=tasks.told.s(key)
    ),
    "chord": lambda key, value, later: chord(
        [tasks.rerunning_soon.si(key, value).set(countdown=later), tasks.rerunning_soon.si(f"{key}-beside")],
        tasks.told.s(key),
    ).apply_async(),
}


def told(place: Place, key: str) -> int:
    """Give how often what hangs on a job has run."""
    return len(place.values(f"{key}-told"))


def check_told(place: Place, keys: dict[str, str]) -> None:
    """Insist that each workflow goes on, once."""
    wait_for(lambda: all(told(place, key) for key in keys.values()), 10, what="the workflows")
    time.sleep(0.5)
    assert {form: told(place, key) for form, key in keys.items()} == dict.fromkeys(keys, 1)


def test_a_workflow_goes_on_behind_a_job_that_was_brought_forward(place: Place) -> None:
    keys = {form: new_key(form) for form in FORMS}
    for form, key in keys.items():
        FORMS[form](key, 1, 60)
        assert tasks.rerunning_soon.delay(key, 2).outcome == "rerun"
    check_told(place, keys)
    assert [place.values(key) for key in keys.values()] == [[2]] * 3


def test_a_workflow_goes_on_behind_a_job_that_was_woken(place: Place) -> None:
    """It waits behind a run, a plain call joins it, the end of the run publishes it."""
    keys: dict[str, str] = {}
    for form, make in FORMS.items():
        keys[form], _ = running(place, tasks.rerunning_soon)
        make(keys[form], 2, 0)
        assert tasks.rerunning_soon.delay(keys[form], 3).outcome == "rerun"
        place.let_end(keys[form])
    check_told(place, keys)
    assert [place.values(key) for key in keys.values()] == [[1, 3]] * 3


def test_a_workflow_goes_on_behind_a_retry_that_a_call_has_joined(place: Place) -> None:
    """The retry is its second attempt all the same: it does not retry once more."""
    key = new_key()
    first = tasks.rerunning_retried.apply_async((key, 1), link=tasks.told.s(key))
    wait_for(lambda: first.state == "RETRY", 10)
    assert tasks.rerunning_retried.delay(key, 5).id == first.id
    assert first.get(timeout=10) == 5
    check_told(place, {"link": key})
    assert place.values(key) == [1, 5]


def test_a_promised_call_that_joins_a_plain_job_is_told_once(place: Place) -> None:
    """It follows that job with its own callbacks; that job has none."""
    keys: dict[str, str] = {}
    for form, make in FORMS.items():
        keys[form], _ = running(place, tasks.rerunning_soon)
        assert tasks.rerunning_soon.delay(keys[form], 2).outcome == "accepted"
        make(keys[form], 3, 0)
        place.let_end(keys[form])
    check_told(place, keys)
    assert [place.values(key) for key in keys.values()] == [[1, 3]] * 3


def test_the_expiry_and_the_queue_of_a_call_that_joins_are_its_own(place: Place) -> None:
    """They end with it: the job that it has joined was accepted without."""
    key, _ = running(place, tasks.rerunning_soon)
    second = tasks.rerunning_soon.delay(key, 2)
    third = tasks.rerunning_soon.apply_async((key, 3), expires=0.5, queue="nobody")
    forward = new_key()
    fourth = tasks.rerunning_soon.apply_async((forward, 1), countdown=60)
    fifth = tasks.rerunning_soon.apply_async((forward, 2), countdown=1.0, expires=0.2)
    assert (third.id, fifth.id) == (second.id, fourth.id)
    time.sleep(0.6)  # the third has expired
    place.let_end(key)
    assert (second.get(timeout=10), fourth.get(timeout=10)) == (3, 2)
    assert (place.values(key), place.values(forward)) == ([1, 3], [2])


def test_a_workflow_of_a_sender_without_the_app_goes_on(place: Place) -> None:
    """Its job is adopted on reception, and stored as the message that it was."""
    key = new_key()
    first = send_raw(tasks.rerunning_soon.name, key, 1, countdown=60, link=tasks.told.s(key))
    wait_for(lambda: peek(tasks.rerunning_soon, key), 10)
    assert tasks.rerunning_soon.delay(key, 2).id == first.id
    assert first.get(timeout=10) == 2
    check_told(place, {"link": key})
    assert place.values(key) == [2]
