"""Strategies: a conflict in, a decision out."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobdedup.conf import LONGEST
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.outcomes import Block, Dead, PutOff, Refuse, Suppress
from django_jobdedup.strategies.base import Conflict
from django_jobdedup.strategies.log import Log
from django_jobdedup.strategies.raise_ import Raise
from django_jobdedup.strategies.reject import Reject
from django_jobdedup.strategies.replace import KeepSoonest, Replace
from django_jobdedup.strategies.rerun import Rerun
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.strategies.skip import Skip
from django_jobdedup.strategies.wait import Wait

CONFLICT = Conflict(side="dispatch", holder_id="the-holder")


def longest(low, high):
    return high


def shortest(low, high):
    return low


@pytest.mark.parametrize(
    ("strategy", "decision"),
    [
        (Skip(), Suppress(log=False)),
        (Log(), Suppress(log=True)),
        (Raise(), Refuse()),
        (Reject(), Dead("rejected: job the-holder holds its lock")),
        (Wait(5, then="skip"), Block(5.0, Suppress())),
        (Wait(5, then="reject"), Block(5.0, Dead("rejected: job the-holder holds its lock"))),
        # Met by these is only a job that has ended and is kept, or is due as soon.
        (Rerun(), Suppress()),
        (Replace(), Suppress()),
        (KeepSoonest(), Suppress()),
    ],
)
def test_a_strategy_decides_without_looking_anywhere(strategy, decision):
    assert strategy.decide(CONFLICT) == decision


@pytest.mark.parametrize(
    ("strategy", "on_waiting", "beside_running"),
    [
        *((each, "keep", False) for each in (Skip(), Log(), Raise(), Reject(), Reschedule(), Wait(5))),
        (Rerun(), "merge", True),
        (Replace(), "over", True),
        (KeepSoonest(), "soonest", False),
    ],
)
def test_a_strategy_says_what_a_refused_dispatch_does_with_a_waiting_job(
    strategy, on_waiting, beside_running
):
    assert (strategy.on_waiting, strategy.beside_running) == (on_waiting, beside_running)


@pytest.mark.parametrize("strategy", [Skip(), Rerun(), Reschedule(7, times=2), Wait(5, then=Reschedule(9))])
def test_a_strategy_survives_pickling(strategy):
    assert pickle.loads(pickle.dumps(strategy)) == strategy


@pytest.mark.parametrize("strategy", [Skip(), Log(), Reject(), Reschedule()])
@pytest.mark.parametrize("side", ["dispatch", "execution"])
def test_most_strategies_stand_at_both_sides(strategy, side):
    strategy.check_side(side)


def test_raise_stands_at_dispatch_only():
    Raise().check_side("dispatch")
    with pytest.raises(PolicyError) as caught:
        Raise().check_side("execution")

    assert str(caught.value) == (
        'on_conflict="raise" cannot stand at execution: a start has no caller to raise to. '
        'Write "log" to end it with a warning, or "reschedule" to run it later.'
    )


def test_a_rescheduled_job_is_put_off_by_its_delay():
    put_off = Reschedule(after=100).decide(CONFLICT)

    assert isinstance(put_off, PutOff)
    assert 80 <= put_off.after <= 120


def test_the_delay_doubles_with_each_put_off_up_to_the_longest():
    strategy = Reschedule(after=5, up_to=300)

    assert [strategy.delay(n, shortest) for n in range(8)] == [4, 8, 16, 32, 64, 128, 240, 240]


def test_the_delay_is_spread_by_a_fifth_to_both_sides_but_never_above_the_longest():
    strategy = Reschedule(after=5, up_to=300)

    assert [strategy.delay(n, longest) for n in range(8)] == [6, 12, 24, 48, 96, 192, 300, 300]


@given(st.floats(0.001, 1000), st.floats(0, 1000), st.integers(0, 10_000))
def test_no_delay_leaves_its_bounds(after, more, put_offs):
    strategy = Reschedule(after=after, up_to=after + more)

    assert 0.8 * after <= strategy.delay(put_offs) <= after + more


def test_durations_may_be_timedeltas():
    assert Reschedule(timedelta(seconds=5), up_to=timedelta(minutes=5)) == Reschedule(5, up_to=300)


@pytest.mark.parametrize("option", ["after", "up_to"])
@pytest.mark.parametrize("wrong", [0, -1, True, "5", None, float("nan"), float("inf"), timedelta(0)])
def test_what_is_no_duration_is_refused(option, wrong):
    with pytest.raises(PolicyError, match=rf"Reschedule option {option} needs a number of seconds above 0"):
        Reschedule(**{option: wrong})


@pytest.mark.parametrize("wrong", [LONGEST + 1, 10**400, timedelta.max])
def test_a_duration_of_more_than_ten_years_is_refused(wrong):
    with pytest.raises(PolicyError, match=r"option up_to needs at most ten years \(315360000 seconds\)"):
        Reschedule(up_to=wrong)


def test_a_first_delay_above_the_longest_is_refused():
    with pytest.raises(PolicyError, match=r"first delay is above the longest\. Write up_to=600 or more"):
        Reschedule(after=600)


@pytest.mark.parametrize("strategy", [Rerun(), Replace(), KeepSoonest()])
def test_what_deals_with_waiting_jobs_stands_at_dispatch_only(strategy):
    strategy.check_side("dispatch")
    with pytest.raises(PolicyError, match=rf'"{strategy.name}" cannot stand at execution: .*Write '):
        strategy.check_side("execution")


def test_only_a_start_can_wait():
    Wait(5).check_side("execution")
    with pytest.raises(PolicyError, match=r'"wait" cannot stand at dispatch: only a start can wait'):
        Wait(5).check_side("dispatch")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"seconds": 0}, "Wait option seconds needs a number of seconds above 0"),
        ({"seconds": "5"}, "Wait option seconds needs a number of seconds above 0"),
        ({"seconds": 601}, r"Wait\(601\) holds a worker slot for too long: write 600 or less, or"),
        ({"seconds": 5, "then": Wait(5)}, r"cannot wait again: write one longer Wait"),
        ({"seconds": 5, "then": "raise"}, '"raise" cannot stand at execution'),
        ({"seconds": 5, "then": "no such"}, 'There is no strategy "no such"'),
    ],
)
def test_a_wait_that_cannot_work_is_refused(options, reason):
    with pytest.raises(PolicyError, match=reason):
        Wait(**options)


def test_a_job_is_dead_after_so_many_put_offs():
    strategy = Reschedule(times=2)
    met = [replace(CONFLICT, put_offs=n) for n in range(4)]

    assert [type(strategy.decide(conflict)) for conflict in met] == [PutOff, PutOff, Dead, Dead]
    assert strategy.decide(met[2]).reason == "put off 2 times: job the-holder holds its lock"


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "3"])
def test_what_is_no_number_of_times_is_refused(wrong):
    with pytest.raises(PolicyError, match="option times needs a whole number from 1 on, or None, not"):
        Reschedule(times=wrong)


@pytest.mark.parametrize(
    ("strategy", "written"),
    [
        (Reschedule(), "Reschedule()"),
        (Reschedule(60), "Reschedule(after=60)"),
        (Reschedule(up_to=90), "Reschedule(up_to=90)"),
        (Reschedule(0.5, timedelta(days=7)), "Reschedule(after=0.5, up_to=604800)"),
        (Reschedule(1 / 3), "Reschedule(after=0.3333333333333333)"),
        (Reschedule(5, 12345678), "Reschedule(up_to=12345678)"),
        (Reschedule(times=3), "Reschedule(times=3)"),
        (Wait(5), "Wait(seconds=5)"),
        (Wait(0.5, then=Reschedule(7)), "Wait(seconds=0.5, then=Reschedule(after=7))"),
        (Skip(), "Skip()"),
        (KeepSoonest(), "KeepSoonest()"),
    ],
)
def test_a_strategy_is_shown_as_it_is_written(strategy, written):
    """In an error that suggests one: exactly."""
    assert repr(strategy) == written
    assert eval(written) == strategy
