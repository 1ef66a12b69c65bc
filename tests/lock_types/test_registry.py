"""Lock types: the knobs of the protocol's table, and names that are none."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from django_jobdedup.exceptions import PolicyError
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
    assert message.endswith('Did you mean "until_executed"?')


def test_a_name_that_is_close_to_nothing_gets_no_suggestion():
    with pytest.raises(PolicyError) as caught:
        lock_type("xyz")

    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("own", ["shop.locks.Nightly", dict, LOCK_TYPES["until_executed"]])
def test_a_lock_type_of_ones_own_is_not_built_yet(own):
    with pytest.raises(PolicyError, match="Own lock types are not built yet") as caught:
        lock_type(own)

    assert '"until_executed"' in str(caught.value)


@pytest.mark.parametrize("wrong", [None, 3, ["until_executed"]])
def test_what_is_no_name_is_refused(wrong):
    with pytest.raises(PolicyError, match=r"A lock type is given by its name, not as .*; known: "):
        lock_type(wrong)
