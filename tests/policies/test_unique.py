"""``Unique``: options and their values, strategies by side, knobs, value semantics."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, fields
from datetime import timedelta

import pytest

from django_jobdedup.header import Knobs
from django_jobdedup.policies.options import READERS, UNSET
from django_jobdedup.policies.unique import Unique
from django_jobdedup.strategies.log import Log
from django_jobdedup.strategies.raise_ import Raise
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.strategies.skip import Skip


def tenant_of(tenant_id, **_):
    return tenant_id


EVERY_OPTION = {
    "lock": "until_expired",
    "key": ["tenant_id", "period"],
    "scope": ["tenant", "reports"],
    "lock_name": "reports",
    "ttl": timedelta(hours=20),
    "lease": 3,
    "limit": 2,
    "on_conflict": "raise",
    "max_starts": None,
    "keep_on_failure": True,
    "on_store_error": "raise",
    "canvas": "run",
    "store": "locks",
    "observe": False,
}


def test_the_defaults_are_those_of_the_design():
    policy = Unique()

    assert policy.lock == "until_executed"
    assert policy.key is None
    assert policy.scope == "tenant"
    assert policy.lock_name is None
    assert (policy.ttl, policy.lease, policy.limit) == (5400.0, 30.0, 1)
    assert (policy.dispatch_strategy, policy.execution_strategy) == (Skip(), Reschedule())
    assert policy.max_starts is None
    assert policy.keep_on_failure is False
    assert policy.on_store_error == "proceed"
    assert policy.canvas == "follow"
    assert policy.store == "default"
    assert policy.observe is False
    assert policy.given == frozenset()


def test_every_option_can_be_given():
    policy = Unique(**EVERY_OPTION)

    assert policy.given == set(EVERY_OPTION) == set(READERS)
    assert policy.options() == EVERY_OPTION | {
        "key": ("tenant_id", "period"),
        "scope": ("tenant", "reports"),
        "ttl": 72_000.0,
        "lease": 3.0,
        "on_conflict": Raise(),
    }


def test_an_option_that_repeats_its_default_still_counts_as_given():
    assert Unique(ttl=5400).given == {"ttl"}
    assert Unique(ttl=5400) != Unique()


def test_an_unset_option_counts_as_not_given():
    assert Unique(ttl=UNSET) == Unique()
    assert repr(UNSET) == "UNSET"


@pytest.mark.parametrize("key", [None, "tenant_id", ("tenant_id", "period"), (), tenant_of])
def test_a_key_may_be_all_a_name_names_nothing_or_a_function(key):
    assert Unique(key=key).key == key


@pytest.mark.parametrize(
    "scope", ["tenant", "queue", None, ("tenant", "queue", 7), tenant_of, (tenant_of, "a")]
)
def test_a_scope_may_be_a_word_a_tuple_nothing_or_a_function(scope):
    assert Unique(scope=scope).scope == scope


def test_lists_are_kept_as_tuples_so_that_nobody_changes_them():
    names, parts = ["a"], ["tenant", ["b"]]
    policy = Unique(key=names, scope=parts)
    names.append("c")
    parts.append("d")

    assert policy.key == ("a",)
    assert policy.scope == ("tenant", ("b",))


def test_a_policy_is_frozen():
    with pytest.raises(FrozenInstanceError):
        Unique().ttl = 3


@pytest.mark.parametrize(
    "policy",
    [Unique(), Unique(**EVERY_OPTION), Unique(key=tenant_of), Unique(scope=({"region": ["eu"]}, "tenant"))],
    ids=["no option", "every option", "key", "scope"],
)
def test_a_policy_is_a_value(policy):
    twins = [Unique(**policy.options()), pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)]

    for twin in twins:
        assert twin == policy
        assert hash(twin) == hash(policy)
        assert twin.given == policy.given


def test_knobs_made_before_do_not_change_equality_or_travel():
    policy = Unique()
    policy.knobs("shop.tasks.report")

    assert policy == Unique()
    assert pickle.loads(pickle.dumps(policy))._knobs == {}


def test_the_repr_is_what_was_written():
    assert repr(Unique()) == "Unique()"
    assert repr(Unique("until_expired", ttl=60)) == "Unique('until_expired', ttl=60.0)"
    assert repr(Unique(key="a", on_conflict="log")) == "Unique(key='a', on_conflict=Log())"


@pytest.mark.parametrize(
    ("lock", "on_conflict", "dispatch", "execution"),
    [
        ("until_executed", None, Skip(), Reschedule()),
        ("until_executed", "log", Log(), Reschedule()),
        ("until_executed", ["reschedule", {"after": 9}], Reschedule(9), Reschedule()),
        ("until_executing", "raise", Raise(), Reschedule()),
        ("while_executing", "log", Skip(), Log()),
        ("while_executing", Reschedule(9), Skip(), Reschedule(9)),
        ("until_and_while_executing", None, Skip(), Reschedule()),
        # One strategy alone is for the dispatch: a start is never skipped unless that was said.
        ("until_and_while_executing", "raise", Raise(), Reschedule()),
        ("until_and_while_executing", {"dispatch": "raise", "execution": "log"}, Raise(), Log()),
        ("until_and_while_executing", {"execution": "skip"}, Skip(), Skip()),
        ("until_and_while_executing", {"dispatch": "log", "execution": None}, Log(), Reschedule()),
        ("until_and_while_executing", {}, Skip(), Reschedule()),
        ("until_and_while_executing", {"dispatch": Reschedule(9)}, Reschedule(9), Reschedule()),
    ],
)
def test_each_side_has_its_strategy(lock, on_conflict, dispatch, execution):
    policy = Unique(lock, on_conflict=on_conflict)

    assert (policy.dispatch_strategy, policy.execution_strategy) == (dispatch, execution)


def test_the_defaults_of_a_policy_are_the_defaults_of_the_header():
    """So the header of ``unique=True`` holds a lock name and nothing else."""
    assert Unique().knobs("") == Knobs()


@pytest.mark.parametrize(
    ("policy", "knobs"),
    [
        (Unique("until_executing"), {"lock": "until_executing", "counts": "PW", "gate": 0}),
        (Unique(limit=3), {"limit": 3, "gate": 3}),
        (
            Unique("until_expired", ttl=9),
            {"lock": "until_expired", "counts": "PWRK", "ttl": 9.0, "keeps": True},
        ),
        (
            Unique("while_executing", limit=2, on_conflict="log"),
            {
                "lock": "while_executing",
                "counts": "",
                "limit": 2,
                "gate": 2,
                "at_dispatch": False,
                "execution": "log",
            },
        ),
        # Jobs that run do not refuse a change: its job waits beside them.
        (Unique(on_conflict="rerun"), {"counts": "PW", "on_waiting": "merge"}),
        (Unique(on_conflict="replace"), {"counts": "PW", "on_waiting": "over"}),
        (Unique(on_conflict="keep_soonest"), {"on_waiting": "soonest"}),
        (Unique(max_starts=3, on_conflict="reject"), {"max_starts": 3}),
        (
            Unique("until_expired", ttl=9, on_conflict="rerun"),
            {
                "lock": "until_expired",
                "counts": "PWK",
                "ttl": 9.0,
                "keeps": True,
                "on_waiting": "merge",
            },
        ),
        (
            Unique("until_and_while_executing", on_conflict={"execution": Reschedule(9)}),
            {
                "lock": "until_and_while_executing",
                "counts": "PW",
                "execution": ["reschedule", {"after": 9.0}],
            },
        ),
        (
            Unique(
                "until_expired", ttl=9, lease=3, keep_on_failure=True, on_store_error="raise", store="locks"
            ),
            {
                "lock": "until_expired",
                "counts": "PWRK",
                "ttl": 9.0,
                "lease": 3.0,
                "keeps": True,
                "keep_on_failure": True,
                "on_store_error": "raise",
                "store": "locks",
            },
        ),
    ],
    ids=repr,
)
def test_the_knobs_are_what_a_worker_needs(policy, knobs):
    assert asdict(policy.knobs("reports")) == asdict(Knobs()) | {"name": "reports"} | knobs


def test_knobs_are_made_once_for_each_lock_name():
    policy = Unique()

    assert policy.knobs("a") is policy.knobs("a")
    assert policy.knobs("a").name == "a"
    assert policy.knobs("b").name == "b"


def test_every_field_but_the_bookkeeping_has_a_reader():
    assert [each.name for each in fields(Unique)] == [*READERS, "given", "_knobs"]
