"""Strategies by name, by instance, by JSON form; what is none is refused with what to write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
from kombu.utils import json as kombu_json

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.outcomes import Suppress
from django_jobdedup.strategies.base import Strategy
from django_jobdedup.strategies.log import Log
from django_jobdedup.strategies.raise_ import Raise
from django_jobdedup.strategies.registry import NOT_BUILT, STRATEGIES, strategy
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.strategies.skip import Skip

BUILT = [Skip(), Log(), Raise(), Reschedule(), Reschedule(7), Reschedule(7, up_to=70)]


@dataclass(frozen=True, slots=True)
class Own(Strategy):
    """A strategy of a project's own."""

    name: ClassVar[str] = "own"

    def decide(self, conflict):
        return Suppress()


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_name_means_the_strategy_with_its_defaults(name):
    assert strategy(name) == STRATEGIES[name]()


@pytest.mark.parametrize("instance", BUILT)
def test_an_instance_means_itself(instance):
    assert strategy(instance) is instance


@pytest.mark.parametrize("instance", BUILT)
def test_the_json_form_means_the_same_strategy(instance):
    assert strategy(json.loads(json.dumps(instance.encode()))) == instance


@pytest.mark.parametrize("instance", BUILT)
def test_a_strategy_travels_in_the_options_of_a_canvas(instance):
    assert strategy(kombu_json.loads(kombu_json.dumps(instance))) == instance


def test_the_json_form_holds_only_what_is_no_default():
    assert Reschedule().encode() == "reschedule"
    assert Reschedule(7).encode() == ["reschedule", {"after": 7.0}]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("reject", 'use "log"'),
        ("replace", 'use "skip"'),
        ("keep_soonest", 'use "skip"'),
        ("rerun", 'use the lock "until_and_while_executing"'),
        ("wait", 'use "reschedule"'),
        ("Wait", 'use "reschedule"'),
    ],
)
@pytest.mark.parametrize("form", [lambda name: name, lambda name: [name, {"seconds": 5}]])
def test_a_strategy_of_a_later_version_says_what_to_use_today(name, instead, form):
    with pytest.raises(PolicyError) as caught:
        strategy(form(name))

    assert f'The strategy "{name}" is not built yet; {instead}' in str(caught.value)


def test_no_strategy_is_both_built_and_not_built():
    assert not STRATEGIES.keys() & NOT_BUILT.keys()


def test_an_unknown_name_is_refused_with_the_known_ones_and_the_close_one():
    with pytest.raises(PolicyError) as caught:
        strategy("reshedule")

    assert str(caught.value) == (
        'There is no strategy "reshedule"; known: "skip", "log", "raise", "reschedule". '
        'Did you mean "reschedule"?'
    )


@pytest.mark.parametrize("own", ["shop.strategies.Own", Own, Own(), lambda conflict: None])
def test_a_strategy_of_ones_own_is_not_built_yet(own):
    with pytest.raises(PolicyError, match=r'Own strategies are not built yet, so .* known: "skip", "log"'):
        strategy(own)


def test_a_class_without_parentheses_says_so():
    with pytest.raises(PolicyError, match=r"on_conflict is a class; write Reschedule\(\), an instance"):
        strategy(Reschedule)


def test_an_unknown_option_is_refused_with_the_known_ones():
    with pytest.raises(PolicyError) as caught:
        strategy(["reschedule", {"upto": 5}])

    assert str(caught.value) == (
        'The strategy "reschedule" has no option \'upto\'; known: "after", "up_to", "times". '
        'Did you mean "up_to"?'
    )


def test_an_option_of_a_strategy_without_options_is_refused():
    with pytest.raises(PolicyError, match=r'The strategy "skip" has no options, so no \'after\''):
        strategy(["skip", {"after": 5}])


@pytest.mark.parametrize("wrong", [["reschedule"], ["reschedule", 5], [5, {}], [], ("skip", {}, {})])
def test_a_list_that_is_no_json_form_is_refused(wrong):
    with pytest.raises(PolicyError, match=r"A strategy with options is written \[name, \{option: value\}\]"):
        strategy(wrong)


@pytest.mark.parametrize("wrong", [None, 5, b"skip", {"skip"}])
def test_anything_else_is_refused(wrong):
    with pytest.raises(PolicyError, match=r"on_conflict needs the name of a strategy, not .*; known: "):
        strategy(wrong)
