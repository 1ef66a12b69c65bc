"""The JSON form: it holds what was written, and means the same policy."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils import json as kombu_json

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.policies.resolve import policy_of
from django_jobdedup.policies.unique import Unique
from django_jobdedup.strategies.log import Log
from django_jobdedup.strategies.reschedule import Reschedule

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(str.isidentifier)
durations = st.floats(1, 300_000_000)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
waiting = st.builds(
    lambda low, more: Reschedule(low, up_to=low + more), st.floats(0.001, 1000), st.floats(0, 1000)
)
refusing = st.sampled_from(["skip", "log", "reject", Log()])
SHARED = {
    "key": st.none() | names | st.lists(names, max_size=3),
    "scope": st.sampled_from(["tenant", "queue", None]) | st.lists(scalars, max_size=3),
    "lock_name": st.none() | st.text(min_size=1, max_size=9).filter(str.strip).filter(str.isprintable),
    "ttl": durations,
    "lease": durations,
    "limit": st.integers(1, 1000),
    "on_store_error": st.sampled_from(["proceed", "raise"]),
    "store": st.text(min_size=1, max_size=9).filter(str.strip),
    "canvas": st.sampled_from(["follow", "run", "mark"]),
    "observe": st.just(False),
    "max_starts": st.none() | st.integers(1, 1000),
}


def optional(lock, on_conflict, **required):
    other = {name: each for name, each in SHARED.items() if name not in required}
    return st.fixed_dictionaries(
        {"lock": st.just(lock), **required}, optional={**other, "on_conflict": on_conflict}
    )


options = st.one_of(
    st.fixed_dictionaries({}, optional=SHARED),
    optional("until_executing", refusing | st.just("raise")),
    optional("until_executed", refusing | st.just("raise")),
    optional("until_expired", refusing, ttl=durations, keep_on_failure=st.booleans()),
    optional("while_executing", refusing | waiting),
    optional(
        "until_and_while_executing",
        st.fixed_dictionaries({}, optional={"dispatch": refusing, "execution": refusing | waiting}),
    ),
)


@given(options.map(lambda written: Unique(**written)))
def test_the_json_form_means_the_same_policy(policy):
    assert Unique.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@given(options.map(lambda written: Unique(**written)))
def test_a_policy_travels_in_the_options_of_a_canvas(policy):
    arrived = kombu_json.loads(kombu_json.dumps(policy))

    assert policy_of("shop.tasks.report", {"store": "replaced"}, arrived) == policy


def test_the_json_form_holds_only_what_was_written():
    assert Unique().to_json() == {}
    assert Unique("while_executing", key=("a", "b"), on_conflict=Reschedule(9)).to_json() == {
        "lock": "while_executing",
        "key": ["a", "b"],
        "on_conflict": ["reschedule", {"after": 9.0}],
    }
    sides = {"dispatch": "log", "execution": "skip"}
    assert Unique("until_and_while_executing", on_conflict=sides).to_json()["on_conflict"] == sides


@pytest.mark.parametrize(
    ("option", "value"), [("key", len), ("scope", len), ("scope", ("tenant", len))], ids=repr
)
def test_a_function_has_no_json_form(option, value):
    with pytest.raises(PolicyError) as caught:
        Unique(**{option: value}).to_json()

    assert f"Unique option {option} holds a function, which has no JSON form" in str(caught.value)
    assert "Declare it on the task or in JOBDEDUP_TASKS" in str(caught.value)


def test_a_constant_that_json_lacks_has_no_json_form():
    with pytest.raises(PolicyError, match=r"option scope holds the constant UUID\(.*no JSON form"):
        Unique(scope=(UUID(int=7),)).to_json()


@pytest.mark.parametrize("wrong", [None, [], "{}", 3])
def test_what_is_no_object_is_refused(wrong):
    with pytest.raises(PolicyError, match="A policy in JSON is an object of options, not"):
        Unique.from_json(wrong)


def test_an_option_that_is_no_text_is_refused():
    with pytest.raises(PolicyError, match="An option of Unique is named by a text, not by 3"):
        Unique.from_json({3: 4})


def test_an_unknown_option_is_refused():
    with pytest.raises(PolicyError, match="Unique has no option 'tl'"):
        Unique.from_json({"tl": 4})
