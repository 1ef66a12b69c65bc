"""Strategies by name, by instance, by JSON form; what is none is refused with what to write."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from kombu.utils import json as kombu_json

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.outcomes import Suppress
from django_jobdedup.strategies.base import Strategy
from django_jobdedup.strategies.log import Log
from django_jobdedup.strategies.raise_ import Raise
from django_jobdedup.strategies.registry import STRATEGIES, strategy
from django_jobdedup.strategies.reject import Reject
from django_jobdedup.strategies.replace import KeepSoonest, Replace
from django_jobdedup.strategies.rerun import Rerun
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.strategies.skip import Skip
from django_jobdedup.strategies.wait import Wait

BUILT = [
    Skip(),
    Log(),
    Raise(),
    Reject(),
    Replace(),
    KeepSoonest(),
    Rerun(),
    Reschedule(),
    Reschedule(7),
    Reschedule(7, up_to=70, times=3),
    Wait(5),
    Wait(5, then="skip"),
    Wait(5, then=Reschedule(7)),
]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Reschedule(time=3), "Reschedule has no option 'time'; known: .* Did you mean \"times\"?"),
        (lambda: Reschedule(1, 2, 3, 4), 'Reschedule takes no 4 in that place; known: "after"'),
        (Wait, '"wait" needs the seconds for which a start may wait: write Wait\\(5\\)'),
        (lambda: Wait(then="skip"), "write Wait\\(5\\)"),
        (lambda: Wait(second=5), "Wait has no option 'second'; .* Did you mean \"seconds\"?"),
        (lambda: Wait(5, "skip", 3), "Wait takes no 3 in that place"),
        (lambda: Wait(5, then="wait"), "cannot wait again: write one longer Wait"),
        (lambda: Wait(5, then=Wait(6)), "cannot wait again: write one longer Wait"),
    ],
)
def test_a_strategy_that_is_written_wrongly_says_what_to_write(make, said):
    with pytest.raises(PolicyError, match=said):
        make()


@dataclass(frozen=True, slots=True)
class Own(Strategy):
    """A strategy of a project's own."""

    name: ClassVar[str] = "own"

    def decide(self, conflict):
        return Suppress()


@dataclass(frozen=True, slots=True)
class Patient(Strategy):
    """One with options."""

    after: object = 5
    names: list[str] = field(default_factory=list)

    def decide(self, conflict):
        return Suppress()


class Unfinished(Strategy):
    """One that does not decide."""


class Stray(Own):
    """One that asks the store for what it does not know."""

    on_waiting = "drop"


class Nowhere(Own):
    """One that may not stand anywhere."""

    sides = ()


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "wait"])
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
    assert Wait(7).encode() == ["wait", {"seconds": 7.0}]
    assert Wait(7, then=Reschedule(9)).encode() == [
        "wait",
        {"seconds": 7.0, "then": ["reschedule", {"after": 9.0}]},
    ]


def test_a_name_of_a_strategy_that_needs_an_option_says_which():
    with pytest.raises(PolicyError, match=r"\"wait\" needs the seconds .*: write Wait\(5\)"):
        strategy("wait")


def test_an_unknown_name_is_refused_with_the_known_ones_and_the_close_one():
    with pytest.raises(PolicyError) as caught:
        strategy("reshedule")

    assert str(caught.value) == (
        'There is no strategy "reshedule"; known: "skip", "log", "raise", "reject", '
        '"replace", "keep_soonest", "rerun", "reschedule", "wait". '
        'Did you mean "reschedule"?'
    )


@pytest.mark.parametrize("own", [f"{__name__}.Own", Own, Own(), [f"{__name__}.Own", {}]])
def test_a_strategy_of_ones_own_is_a_class_an_instance_or_a_dotted_path(own):
    assert strategy(own) == Own()


@pytest.mark.parametrize("instance", [Own(), Patient(), Patient(7, ["a"])])
def test_a_strategy_of_ones_own_travels_as_its_dotted_path(instance):
    encoded = json.loads(json.dumps(instance.encode()))

    assert (encoded if isinstance(encoded, str) else encoded[0]).startswith(f"{__name__}.")
    assert strategy(encoded) == instance


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("shop.strategies.Own", r"The strategy \'shop\.strategies\.Own\' cannot be imported: ModuleNotFound"),
        ("json.loads", "'json.loads' is no strategy: write a subclass of"),
        (Unfinished, r"Unfinished\(\) cannot be made: .*decide"),
        (f"{__name__}.Stray", r'Stray.on_waiting is \'drop\'; known: "keep", "merge"'),
        (Nowhere(), r'Nowhere.sides is \(\); known: "dispatch", "execution"'),
        (Patient(after=object()), "The options of .*Patient travel in the message header"),
        (Patient(after=float("nan")), "The options of .*Patient travel in the message header"),
    ],
)
def test_a_strategy_of_ones_own_that_cannot_work_is_refused(wrong, reason):
    with pytest.raises(PolicyError, match=reason):
        strategy(wrong)


def test_a_strategy_that_no_other_process_could_import_is_refused():
    class Local(Own):
        pass

    with pytest.raises(PolicyError, match=r"Local cannot be imported by it: put the class at the top"):
        strategy(Local)


def test_a_class_means_the_strategy_with_its_defaults():
    assert strategy(Reschedule) == Reschedule()


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


@pytest.mark.parametrize("wrong", [None, 5, b"skip", {"skip"}, dict, lambda conflict: None])
def test_anything_else_is_refused(wrong):
    with pytest.raises(
        PolicyError, match=r"needs the name of a strategy, or one of your own .*, not .*; known: "
    ):
        strategy(wrong)
