"""What a policy refuses as it is made, and what it says to write instead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobdedup.exceptions import JobDedupError, PolicyError
from django_jobdedup.lock_types.base import LockType
from django_jobdedup.policies.options import READERS
from django_jobdedup.policies.unique import Unique
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.strategies.skip import Skip
from django_jobdedup.strategies.wait import Wait


def refusal(*args, **options):
    with pytest.raises(PolicyError) as caught:
        Unique(*args, **options)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, JobDedupError)
    return str(caught.value)


def test_an_unknown_option_is_refused_with_the_known_ones_and_the_close_one():
    message = refusal(leese=30)

    assert "Unique has no option 'leese'" in message
    assert all(f'"{name}"' in message for name in READERS)
    assert message.endswith('Did you mean "lease"?')


def test_an_unknown_lock_is_refused():
    message = refusal("until_run")
    assert 'There is no lock type "until_run"' in message
    assert message.endswith("Which arguments count is written key=...")


@pytest.mark.parametrize("option", ["limit", "max_starts"])
def test_a_number_that_no_header_carries_is_refused(option):
    assert "2**40" in refusal(**{option: 2**40})


def test_a_second_positional_argument_is_refused_with_what_to_write():
    message = refusal("until_executed", "tenant_id")

    assert "so no 'tenant_id': write Unique(\"until_executed\", key='tenant_id')" in message
    assert '"on_conflict"' in message


@pytest.mark.parametrize("name", ["debounce", "throttle"])
def test_an_option_of_a_later_version_is_refused_with_what_to_write_today(name):
    message = refusal(**{name: 5})

    assert f"Unique has no option '{name}': it is not built yet; until then the nearest is" in message


@pytest.mark.parametrize("wrong", ["wait", Wait, ["wait", {}], {"execution": "wait"}])
def test_a_wait_without_its_time_is_refused_with_what_to_write(wrong):
    lock = "until_and_while_executing" if isinstance(wrong, dict) else "while_executing"

    assert '"wait" needs the seconds for which a start may wait: write Wait(5)' in refusal(
        lock, on_conflict=wrong
    )


@pytest.mark.parametrize("option", ["ttl", "lease"])
@pytest.mark.parametrize(
    "wrong", [0, -1, 0.0, True, False, "60", None, float("nan"), float("inf"), timedelta(0), timedelta(-1)]
)
def test_what_is_no_duration_is_refused(option, wrong):
    assert refusal(**{option: wrong}).startswith(
        f"Unique option {option} needs a number of seconds above 0 or a timedelta, not "
    )


@pytest.mark.parametrize("wrong", [10**12, 10**400, timedelta.max])
def test_a_duration_of_more_than_ten_years_is_refused(wrong):
    assert "Unique option ttl needs at most ten years (315360000 seconds)" in refusal(ttl=wrong)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.0, "2", None])
def test_what_is_no_limit_is_refused(wrong):
    assert refusal(limit=wrong) == f"Unique option limit needs a whole number from 1 on, not {wrong!r}."


@pytest.mark.parametrize("option", ["keep_on_failure", "observe"])
@pytest.mark.parametrize("wrong", [None, 1, "yes"])
def test_what_is_no_flag_is_refused(option, wrong):
    assert refusal(**{option: wrong}) == f"Unique option {option} needs True or False, not {wrong!r}."


@pytest.mark.parametrize("option", ["lock_name", "store"])
@pytest.mark.parametrize("wrong", ["", "  ", 3, b"reports"])
def test_what_is_no_name_is_refused(option, wrong):
    assert refusal(**{option: wrong}) == (
        f"Unique option {option} needs a text that is not empty, not {wrong!r}."
    )


def test_a_store_is_needed():
    assert "Unique option store needs a text" in refusal(store=None)


def test_no_lock_name_is_the_name_of_the_task():
    assert Unique(lock_name=None).lock_name is None


@pytest.mark.parametrize("wrong", ["ignore", None, True, 3])
def test_what_is_no_way_out_of_a_store_error_is_refused(wrong):
    assert refusal(on_store_error=wrong) == (
        f'Unique option on_store_error needs "proceed" (run without a lock) or "raise", not {wrong!r}.'
    )


@pytest.mark.parametrize("wrong", [{"a", "b"}, 3, [1], ["a", None], "order.id", [""], b"a"])
def test_what_is_no_key_is_refused(wrong):
    assert "cannot be used; write an argument name, a list of argument names" in refusal(key=wrong)


@pytest.mark.parametrize("wrong", ["tennant", 3, b"tenant", {"tenant"}])
def test_what_is_no_scope_is_refused(wrong):
    assert 'cannot be used; write "tenant", "queue", None' in refusal(scope=wrong)


def test_a_part_of_a_scope_without_a_form_is_refused():
    assert "scope has a part that cannot be a constant" in refusal(scope=("tenant", object()))


# Options of later versions


@pytest.mark.parametrize("wrong", ["ignore", None, True])
def test_what_is_no_canvas_is_refused(wrong):
    assert refusal(canvas=wrong) == (
        'Unique option canvas needs "follow" (take the other job\'s outcome), "run" or "mark" (do nothing), '
        f"not {wrong!r}."
    )


@pytest.mark.parametrize("wrong", [0, True, "3"])
def test_what_is_no_number_of_starts_is_refused_as_such(wrong):
    assert f"option max_starts needs a whole number from 1 on, not {wrong!r}" in refusal(max_starts=wrong)


# Pairs


class Kept(LockType):
    """A lock type of a project's own that outlives the run."""

    counts = "PWRK"
    keeps = True


class Coming(Skip):
    """A strategy of a project's own that comes over the job that waits."""

    on_waiting = "over"


def test_a_lock_type_of_ones_own_that_outlives_the_run_needs_a_ttl_too():
    assert f'The lock "{__name__}.Kept" is freed by its ttl alone' in refusal(Kept)
    assert Unique(Kept, ttl=60, keep_on_failure=True).lock == f"{__name__}.Kept"


def test_until_expired_needs_a_ttl():
    assert refusal("until_expired") == (
        'The lock "until_expired" is freed by its ttl alone, so it needs one: '
        'write Unique("until_expired", ttl=timedelta(hours=20)).'
    )


@pytest.mark.parametrize(
    "lock", ["until_executing", "until_executed", "while_executing", "until_and_while_executing"]
)
def test_only_until_expired_can_be_kept_after_a_failure(lock):
    message = refusal(lock, keep_on_failure=True)

    assert 'write lock="until_expired" with a ttl' in message
    assert f'leave it out with "{lock}"' in message


@pytest.mark.parametrize("lock", ["until_executed", "until_and_while_executing"])
@pytest.mark.parametrize(
    ("strategy", "title"),
    [(each, each) for each in ("reschedule", "replace", "keep_soonest", "rerun")]
    + [(Coming, f"{__name__}.Coming")],
)
def test_more_than_one_seat_goes_with_skip_log_raise_and_reject_at_dispatch(lock, strategy, title):
    for name in ("skip", "log", "raise", "reject"):
        assert Unique(lock, limit=2, on_conflict=name).limit == 2
    dispatch = strategy if lock == "until_executed" else {"dispatch": strategy}

    assert refusal(lock, limit=2, on_conflict=dispatch) == (
        'limit=2 goes with "skip", "log", "raise" and "reject" at dispatch, not with '
        f'"{title}": choose one of them, or write limit=1.'
    )


def test_more_than_one_running_goes_with_reschedule_at_execution():
    assert Unique("while_executing", limit=3, on_conflict=Reschedule(9)).knobs("a").gate == 3
    assert Unique("until_and_while_executing", limit=3).knobs("a").gate == 3


@pytest.mark.parametrize("strategy", ["replace", "keep_soonest", "rerun"])
def test_what_deals_with_waiting_jobs_needs_a_lock_that_conflicts_at_dispatch(strategy):
    assert f'"{strategy}" cannot stand at execution: ' in refusal("while_executing", on_conflict=strategy)


def test_a_wait_needs_a_lock_whose_start_conflicts():
    message = refusal(on_conflict=Wait(5))

    assert 'on_conflict="wait" cannot stand at dispatch: only a start can wait.' in message
    assert 'as {"execution": Wait(5)} for the lock "until_and_while_executing"' in message
    assert Unique("while_executing", on_conflict=Wait(5)).knobs("a").execution == ["wait", {"seconds": 5.0}]


def test_raise_cannot_stand_where_only_a_start_conflicts():
    message = refusal("while_executing", on_conflict="raise")

    assert 'on_conflict="raise" cannot stand at execution' in message
    assert 'Write "log" to end it with a warning, or "reschedule" to run it later.' in message


def test_raise_cannot_stand_at_the_execution_side():
    assert 'on_conflict="raise" cannot stand at execution' in refusal(
        "until_and_while_executing", on_conflict={"execution": "raise"}
    )


@pytest.mark.parametrize(
    ("lock", "side", "write"),
    [
        ("until_executed", "dispatch", "on_conflict='log'"),
        ("until_executing", "dispatch", "on_conflict='log'"),
        ("while_executing", "execution", "on_conflict='log'"),
    ],
)
def test_a_dict_of_sides_needs_a_lock_that_conflicts_at_both(lock, side, write):
    message = refusal(lock, on_conflict={side: "log"})

    assert f'The lock "{lock}" conflicts at {side} only' in message
    assert write in message


def test_a_dict_for_the_wrong_side_says_what_the_right_one_would_be():
    message = refusal("until_executed", on_conflict={"execution": "log"})

    assert "conflicts at dispatch only: write the strategy itself, as on_conflict='skip'" in message


def test_one_reschedule_for_a_lock_with_two_sides_is_ambiguous():
    message = refusal("until_and_while_executing", on_conflict=Reschedule(9))

    assert "Say for which side this is" in message
    assert 'on_conflict={"execution": Reschedule(after=9)}' in message


def test_a_side_that_does_not_exist_is_refused():
    message = refusal("until_and_while_executing", on_conflict={"exekution": "log"})

    assert message == (
        'on_conflict has no side \'exekution\'; known: "dispatch", "execution". Did you mean "execution"?'
    )


def test_a_ttl_may_be_shorter_than_the_lease():
    """The TTL is the lifetime of a waiting holder, the lease that of a running one."""
    assert Unique(ttl=10, lease=30).ttl == 10


@pytest.mark.parametrize(("option", "value"), [("lease", 0.5), ("lease", 1e-9), ("ttl", 1e-9), ("ttl", 0.05)])
def test_what_is_too_short_to_be_kept_is_refused(option, value):
    """A lease is renewed by a thread, at most ten times a second; milliseconds are the store's grain."""
    assert f"Unique option {option} needs at least" in refusal(**{option: value})
