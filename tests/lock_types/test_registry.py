"""Lock types: the knobs of the protocol's table, and names that are none."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.lock_types.base import LockType
from django_jobdedup.lock_types.registry import LOCK_TYPES, lock_type

# Section 1 of the protocol: counts, gate, kept at a good end, seat at dispatch, where the user is asked.
TABLE = [
    ("until_executing", "PW", False, False, True, ("dispatch",)),
    ("until_executed", "PWR", True, False, True, ("dispatch",)),
    ("until_expired", "PWRK", True, True, True, ("dispatch",)),
    ("while_executing", "", True, False, False, ("execution",)),
    ("until_and_while_executing", "PW", True, False, True, ("dispatch", "execution")),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_a_lock_type_has_the_knobs_of_the_protocol(row):
    name, *knobs = row
    found = lock_type(name)

    assert [
        found.counts,
        found.gated,
        found.keeps,
        found.at_dispatch,
        found.conflicts,
    ] == knobs


def test_the_table_above_is_complete():
    assert list(LOCK_TYPES) == [name for name, *_ in TABLE]


def test_a_lock_type_is_frozen():
    with pytest.raises(FrozenInstanceError):
        lock_type("until_executed").counts = "P"


def test_an_unknown_name_is_refused_with_the_known_ones_and_the_close_one():
    with pytest.raises(PolicyError) as caught:
        lock_type("until_execute")

    message = str(caught.value)
    assert 'There is no lock type "until_execute"' in message
    assert all(f'"{name}"' in message for name in LOCK_TYPES)
    assert 'Did you mean "until_executed"?' in message


def test_a_name_that_is_close_to_nothing_gets_no_suggestion():
    with pytest.raises(PolicyError) as caught:
        lock_type("xyz")

    assert "Did you mean" not in str(caught.value)


class UntilCollected(LockType):
    """One of a project's own: as until_executed, but kept."""

    counts = "PWRK"
    keeps = True


class OneRuns(LockType):
    """One that is taken at start."""

    counts = ""


class Both(UntilCollected):
    """One that conflicts at two places."""

    conflicts = ("dispatch", "execution")


@pytest.mark.parametrize(
    ("own", "knobs"),
    [
        (UntilCollected, ("PWRK", True, True, True, ("dispatch",))),
        (OneRuns, ("", True, False, False, ("execution",))),
        (Both, ("PWRK", True, True, True, ("dispatch", "execution"))),
    ],
)
def test_a_lock_type_of_ones_own_is_a_class_with_the_knobs_as_attributes(own, knobs):
    path = f"{__name__}.{own.__name__}"

    assert lock_type(own) == lock_type(path) == LockType(path, *knobs)
    assert lock_type(path) is lock_type(own)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"counts": "PX"}, "counts is 'PX'; it takes letters of PWRK"),
        ({"counts": None}, "counts is None; it takes letters"),
        ({"gated": 1}, "gated is 1; it takes True or False"),
        ({"conflicts": "dispatch"}, "conflicts is 'dispatch'; it takes a tuple"),
        ({"conflicts": ()}, r"conflicts is \(\); it takes a tuple"),
        ({"conflicts": ("start",)}, "conflicts is .*; it takes a tuple"),
        ({"at_dispatch": False}, "a lock taken at dispatch counts states"),
        ({"counts": "", "conflicts": ("dispatch",)}, "not taken at dispatch cannot conflict there"),
        ({"gated": False, "conflicts": ("execution",)}, "only a gated lock can conflict at execution"),
        ({"keeps": True}, "add K to counts"),
    ],
)
def test_a_lock_type_that_cannot_work_is_refused(attributes, reason):
    wrong = type("Wrong", (LockType,), {"__module__": __name__, "__qualname__": "Wrong", **attributes})

    with pytest.raises(PolicyError, match=rf"The lock type {__name__}\.Wrong cannot work: .*{reason}"):
        lock_type(wrong)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("shop.locks.Nightly", "The lock type 'shop.locks.Nightly' cannot be imported: ModuleNotFoundError"),
        (dict, "is no lock type: write a subclass of django_jobdedup.lock_types.base.LockType"),
        (LockType, "is no lock type"),
        ("json.loads", "'json.loads' is no lock type"),
    ],
)
def test_a_class_that_is_no_lock_type_is_refused(wrong, reason):
    with pytest.raises(PolicyError, match=reason):
        lock_type(wrong)


def test_a_lock_type_that_no_other_process_could_import_is_refused():
    class Local(LockType):
        pass

    with pytest.raises(PolicyError, match="Local cannot be imported by it: put the class at the top"):
        lock_type(Local)


@pytest.mark.parametrize("wrong", [None, 3, ["until_executed"], LOCK_TYPES["until_executed"]])
def test_what_is_no_name_is_refused(wrong):
    with pytest.raises(
        PolicyError, match=r"A lock type is given by its name, or as a class .* not as .*; known: "
    ):
        lock_type(wrong)
