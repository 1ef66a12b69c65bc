"""``current_lock()``: what a body can know of its lock."""

from __future__ import annotations

import pytest

from django_jobdedup import current_lock

from . import tasks
from .conftest import Stage, new_key


def test_there_is_none_outside_a_body() -> None:
    assert current_lock() is None


def test_there_is_none_in_a_direct_and_in_an_eager_call(stage: Stage) -> None:
    assert tasks.looking_without_a_policy("k") is True
    assert tasks.looking_without_a_policy.apply(args=("k",)).get() is True
    with pytest.raises(AssertionError):
        tasks.looking.apply(args=("k",), throw=True)


@pytest.mark.worker
def test_there_is_none_without_a_policy_and_after_a_bypass(stage: Stage) -> None:
    key = new_key()
    assert tasks.looking_without_a_policy.delay(key).get(timeout=10) is True
    with pytest.raises(AssertionError):
        tasks.looking.apply_async((key,), unique=False).get(timeout=10)


@pytest.mark.worker
def test_a_body_knows_its_fingerprint_its_token_and_that_it_holds(stage: Stage) -> None:
    key = new_key()
    result = tasks.looking.delay(key, 2.5 * tasks.LEASE)
    told = result.get(timeout=20)
    assert told["fingerprint"] == result.fingerprint
    assert told["token"] == result.id
    assert (told["held"], told["check"], told["held_at_end"]) == (True, None, True)


@pytest.mark.worker
def test_fences_rise_from_run_to_run(stage: Stage) -> None:
    key = new_key()
    fences = [tasks.looking.delay(key).get(timeout=10)["fence"] for _ in range(3)]
    assert fences == sorted(set(fences))
