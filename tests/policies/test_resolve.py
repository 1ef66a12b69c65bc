"""Precedence: the call, then ``JOBDEDUP_TASKS``, then the task, then ``JOBDEDUP_DEFAULTS``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.policies import resolve as module
from django_jobdedup.policies.resolve import (
    BYPASS,
    UNSET,
    check_against,
    policy_of,
    refuse_unbuilt,
    resolve,
    settings_entry,
)
from django_jobdedup.policies.unique import Unique

TASK = "shop.tasks.report"


def said(unique):
    return {TASK: {"unique": unique}}


# What each place says, and which options the policy has at the end; None: no policy.
PRECEDENCE = [
    # task, settings, call, defaults -> options
    (None, {}, UNSET, {}, None),
    (False, {}, UNSET, {}, None),
    (True, {}, UNSET, {}, {}),
    ({}, {}, UNSET, {}, {}),
    ({"ttl": 1}, {}, UNSET, {}, {"ttl": 1.0}),
    (Unique(ttl=1), {}, UNSET, {}, {"ttl": 1.0}),
    # the defaults fill what nobody wrote, and turn nothing on
    (None, {}, UNSET, {"ttl": 9}, None),
    (True, {}, UNSET, {"ttl": 9}, {"ttl": 9.0}),
    (Unique(lease=2), {}, UNSET, {"ttl": 9}, {"lease": 2.0, "ttl": 9.0}),
    (Unique(ttl=5400), {}, UNSET, {"ttl": 9}, {"ttl": 5400.0}),
    ({"ttl": 1}, {}, UNSET, {"ttl": 9, "limit": 2}, {"ttl": 1.0, "limit": 2}),
    # settings over the task
    (None, said(True), UNSET, {}, {}),
    (None, said({"ttl": 2}), UNSET, {}, {"ttl": 2.0}),
    (True, said(False), UNSET, {}, None),
    (Unique(ttl=1), said(True), UNSET, {}, {"ttl": 1.0}),
    (Unique(ttl=1), said(None), UNSET, {}, {"ttl": 1.0}),
    (Unique(ttl=1), {TASK: {}}, UNSET, {}, {"ttl": 1.0}),
    (Unique(ttl=1, lease=1), said({"ttl": 2}), UNSET, {}, {"ttl": 2.0, "lease": 1.0}),
    (Unique(ttl=1, lease=1), said(Unique(ttl=2)), UNSET, {}, {"ttl": 2.0}),
    (Unique(ttl=1), {"other": {"unique": False}}, UNSET, {}, {"ttl": 1.0}),
    # the call over all
    (None, {}, True, {}, {}),
    (None, {}, {"ttl": 3}, {}, {"ttl": 3.0}),
    (None, {}, Unique(ttl=3), {"limit": 2}, {"ttl": 3.0, "limit": 2}),
    (Unique(ttl=1, lease=1), {}, {"ttl": 3}, {}, {"ttl": 3.0, "lease": 1.0}),
    (Unique(ttl=1, lease=1), {}, Unique(ttl=3), {}, {"ttl": 3.0}),
    (Unique(ttl=1), said({"ttl": 2}), {"ttl": 3}, {"ttl": 9}, {"ttl": 3.0}),
    (Unique(lease=1), said({"ttl": 2}), {"limit": 3}, {}, {"lease": 1.0, "ttl": 2.0, "limit": 3}),
    (Unique(ttl=1), said(False), True, {}, {"ttl": 1.0}),
    (Unique(ttl=1), said(False), {"lease": 3}, {}, {"ttl": 1.0, "lease": 3.0}),
    (Unique(ttl=1), {}, None, {}, {"ttl": 1.0}),
    # a whole policy in JSON replaces, as the instance it came from
    (Unique(ttl=1, lease=1), {}, {"policy": "unique", "ttl": 3}, {}, {"ttl": 3.0}),
]


@pytest.mark.parametrize(("declared", "tasks", "override", "defaults", "options"), PRECEDENCE)
def test_the_higher_place_wins_option_by_option(declared, tasks, override, defaults, options):
    policy = resolve(TASK, declared, override, tasks=tasks, defaults=defaults)

    assert (policy and policy.options()) == (None if options is None else Unique(**options).options())
    assert (policy is None) == (options is None)


@pytest.mark.parametrize("declared", [None, False, True, Unique(ttl=1)])
def test_false_at_the_call_goes_past_any_policy(declared):
    assert resolve(TASK, declared, False, tasks=said(True), defaults={}) is BYPASS


def test_options_of_two_places_are_judged_together():
    with pytest.raises(PolicyError) as caught:
        resolve(TASK, {"lock": "while_executing"}, {"on_conflict": "raise"}, tasks={}, defaults={})

    assert str(caught.value).startswith("policy of 'shop.tasks.report': on_conflict=\"raise\" cannot stand")


def test_a_ttl_of_the_defaults_is_enough_for_until_expired():
    policy = resolve(TASK, {"lock": "until_expired"}, tasks={}, defaults={"ttl": 60})

    assert policy == Unique("until_expired", ttl=60)


# Which entry of JOBDEDUP_TASKS speaks


@pytest.mark.parametrize(
    ("patterns", "best"),
    [
        (["*", TASK], TASK),
        (["shop.*", "*"], "shop.*"),
        (["*", "shop.*", "shop.tasks.*"], "shop.tasks.*"),
        (["shop.*", "*.tasks.report"], "*.tasks.report"),
        (["shop.tasks.r?????", "shop.tasks.*"], "shop.tasks.r?????"),
        (["shop.tasks.[a-z]*", "shop.tasks.r*"], "shop.tasks.r*"),
        (["*.report", "shop.ta*"], "*.report"),
        (["shop.ta*", "*.report"], "shop.ta*"),
        (["SHOP.*", "other.*"], ""),
        ([], ""),
    ],
)
def test_the_exact_name_wins_then_the_glob_with_most_plain_characters_then_the_first(patterns, best):
    tasks = {pattern: {"unique": {"lock_name": pattern}} for pattern in patterns}

    assert settings_entry(TASK, tasks) == (best, {"lock_name": best} if best else None)


def test_the_other_entries_do_not_add_to_the_one_that_speaks():
    tasks = {TASK: {"unique": {"ttl": 2}}, "shop.*": {"unique": {"lease": 2}}, "*": {"unique": False}}

    assert resolve(TASK, None, tasks=tasks, defaults={}) == Unique(ttl=2)


@pytest.mark.parametrize("wrong", [True, None, Unique(), ["unique"]])
def test_an_entry_that_is_no_dict_is_refused(wrong):
    with pytest.raises(PolicyError, match=r"JOBDEDUP_TASKS\['shop\.\*'\] needs a dict such as"):
        settings_entry(TASK, {"shop.*": wrong})


def test_an_option_on_the_wrong_level_is_refused_with_the_right_one():
    with pytest.raises(PolicyError) as caught:
        settings_entry(TASK, {"shop.*": {"ttl": 60}})

    assert "has the unknown key 'ttl'; options stand one level deeper: {\"unique\": {'ttl': ...}}" in str(
        caught.value
    )


@pytest.mark.parametrize("option", ["debounce", "throttle"])
def test_debounce_and_throttle_in_settings_are_not_built_yet(option):
    with pytest.raises(
        PolicyError, match=rf"JOBDEDUP_TASKS\['shop\.\*'\]: {option}= is not built yet; until"
    ):
        settings_entry(TASK, {"shop.*": {option: True}})


# What is no policy


@pytest.mark.parametrize("wrong", ["until_executed", 1, 0, ["unique"], object])
@pytest.mark.parametrize(
    ("place", "where"),
    [
        (lambda wrong: (wrong, {}, UNSET), "task 'shop.tasks.report': "),
        (lambda wrong: (None, said(wrong), UNSET), "JOBDEDUP_TASKS['shop.tasks.report']: "),
        (lambda wrong: (None, {}, wrong), "call of 'shop.tasks.report': "),
    ],
)
def test_what_is_no_policy_is_refused_with_the_place_where_it_stands(place, where, wrong):
    declared, tasks, override = place(wrong)
    with pytest.raises(PolicyError) as caught:
        resolve(TASK, declared, override, tasks=tasks, defaults={})

    assert str(caught.value) == (
        f"{where}unique= needs True, False, a dict of options or a Unique, not {wrong!r}."
    )


def test_the_class_without_parentheses_says_so():
    with pytest.raises(PolicyError, match=r"is the class Unique; write unique=Unique\(\) or unique=True"):
        resolve(TASK, Unique, tasks={}, defaults={})


def test_a_wrong_policy_in_json_names_the_call():
    with pytest.raises(PolicyError, match=r"call of 'shop\.tasks\.report': Unique has no option 'tl'"):
        resolve(TASK, None, {"policy": "unique", "tl": 3}, tasks={}, defaults={})


def test_a_lock_name_cannot_be_a_default():
    with pytest.raises(PolicyError) as caught:
        resolve(TASK, True, tasks={}, defaults={"lock_name": "all"})

    assert str(caught.value) == (
        "JOBDEDUP_DEFAULTS cannot set lock_name: every task would share one lock; "
        "write it on the tasks that shall."
    )


# The front


@pytest.fixture(autouse=True)
def _forgotten():
    module._cache.clear()


def test_the_front_reads_the_settings(settings):
    settings.JOBDEDUP_TASKS = {"shop.*": {"unique": {"ttl": 2}}}
    settings.JOBDEDUP_DEFAULTS = {"lease": 3}

    assert policy_of(TASK, None) == Unique(ttl=2, lease=3)
    assert policy_of(TASK, None, {"ttl": 7}) == Unique(ttl=7, lease=3)
    assert policy_of("other.task", None) is None


def test_the_front_forgets_when_a_setting_changes(settings):
    assert policy_of(TASK, None) is None
    settings.JOBDEDUP_TASKS = {"shop.*": {"unique": True}}
    assert policy_of(TASK, None) == Unique()
    settings.JOBDEDUP_DEFAULTS = {"ttl": 3}
    assert policy_of(TASK, None) == Unique(ttl=3)


def test_a_setting_of_somebody_else_makes_it_forget_nothing(settings):
    policy = policy_of(TASK, {"ttl": 3})
    settings.USE_TZ = not settings.USE_TZ

    assert policy_of(TASK, None) is None
    assert len(module._cache) == 2
    assert policy is not None


def test_the_front_resolves_once():
    declared = {"ttl": 3}

    assert policy_of(TASK, declared) is policy_of(TASK, declared)
    assert policy_of(TASK, declared, None) is policy_of(TASK, declared)


def test_two_tasks_of_one_name_do_not_share_a_policy():
    """A name sent from a process that does not know the task meets the task elsewhere."""
    assert policy_of(TASK, None) is None
    assert policy_of(TASK, {"ttl": 1}) == Unique(ttl=1)
    assert policy_of(TASK, {"ttl": 2}) == Unique(ttl=2)
    assert policy_of(TASK, None) is None


def test_a_declaration_that_is_gone_does_not_leave_its_policy_to_another():
    """The id of a collected object is given to the next one."""
    for ttl in range(1, 200):
        assert policy_of(TASK, {"ttl": ttl}) == Unique(ttl=ttl)


def test_the_front_stays_small(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 3)
    for number in range(10):
        policy_of(f"shop.tasks.{number}", None)

    assert len(module._cache) <= 3
    assert policy_of("shop.tasks.9", True) == Unique()


def test_a_call_that_goes_past_its_policy_is_told_apart_from_one_without():
    assert policy_of(TASK, None, False) is BYPASS
    assert policy_of(TASK, None) is None


# What needs the task


def report(tenant_id, period="2026-08"):
    pass


def test_a_key_that_names_no_argument_is_refused_with_those_that_there_are():
    with pytest.raises(PolicyError) as caught:
        check_against(Unique(key=["tenant_id", "perod"]), report, TASK)

    message = str(caught.value)
    assert message.startswith("task 'shop.tasks.report': key names 'perod', which the task does not take")
    assert "did you mean 'period'?" in message
    assert "tenant_id, period" in message


@pytest.mark.parametrize("key", [None, [], "tenant_id", ["period", "tenant_id"], len])
def test_a_key_of_arguments_that_the_task_takes_is_fine(key):
    check_against(Unique(key=key), report, TASK)


def test_a_task_that_takes_any_keyword_takes_any_key():
    check_against(Unique(key="anything"), lambda **rest: None, TASK)


@pytest.mark.parametrize("option", ["debounce", "throttle"])
def test_debounce_and_throttle_are_not_built_yet(option):
    task, plain = SimpleNamespace(**{option: object()}), SimpleNamespace()
    with pytest.raises(PolicyError, match=rf"task 'shop\.tasks\.report': {option}= is not built yet; until"):
        refuse_unbuilt(TASK, task, {})
    with pytest.raises(PolicyError, match=rf"{option}= is not built yet"):
        refuse_unbuilt(TASK, plain, {option: {"wait": 3}})


def test_debounce_and_throttle_turned_off_are_fine():
    refuse_unbuilt(TASK, SimpleNamespace(debounce=None), {"throttle": False})
    refuse_unbuilt(TASK, None, {})
