"""Properties of canonical text over generated values."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from django_jobdedup.exceptions import FingerprintError
from django_jobdedup.fingerprint.canonical import canonical
from django_jobdedup.fingerprint.digest import text_of

settings.register_profile("fingerprint", deadline=None)
QUICK = settings(settings.get_profile("fingerprint"), max_examples=150)

TEXT = st.text(st.characters(codec=None))
KEYS = st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.none(), st.floats())
JSON_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec="utf-8"))
)
JSON_VALUES = st.recursive(
    JSON_SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=20,
)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
RICH_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(),
    TEXT,
    st.sampled_from(["", "1", "null", "set()", '"', "\\", "[]", "\ud83d\ude00", "\U0001f600", "\\sd83d"]),
    st.binary(max_size=3),
    st.decimals(allow_nan=False),
    st.just(Decimal("NaN")),
    st.uuids(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.datetimes(timezones=OFFSETS),
)
RICH = st.recursive(
    RICH_SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.frozensets(st.one_of(RICH_SCALARS, st.frozensets(RICH_SCALARS, max_size=2)), max_size=3),
    ),
    max_leaves=8,
)


def model(value: Any) -> Any:
    """Return a hashable stand-in that is equal exactly where two values are the same for a user.

    Written without the code under test: type and value, with the few foldings of the table.
    """
    if isinstance(value, list | tuple):
        return ("list", *map(model, value))
    if isinstance(value, dict):
        return ("dict", frozenset((key, model(item)) for key, item in value.items()))
    if isinstance(value, frozenset):
        return ("set", frozenset(map(model, value)))
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value + 0.0)
    if isinstance(value, Decimal):
        return ("decimal", "nan" if value.is_nan() else value)
    return (type(value).__name__, value)


@given(RICH, RICH)
@QUICK
def test_two_values_have_one_text_exactly_when_they_are_one_value(left: object, right: object) -> None:
    assert (canonical(left) == canonical(right)) == (model(left) == model(right))


@given(st.lists(RICH, max_size=12))
@QUICK
def test_many_values_have_as_many_texts_as_there_are_values(values: list[Any]) -> None:
    assert len({canonical(value) for value in values}) == len({model(value) for value in values})


@given(JSON_VALUES)
@QUICK
def test_a_trip_through_json_changes_nothing(value: object) -> None:
    try:
        before = canonical(value)
    except FingerprintError as error:
        assume("two keys" not in str(error))
        raise
    assert canonical(json.loads(json.dumps(value))) == before


@given(st.lists(RICH_SCALARS, max_size=6), st.randoms(use_true_random=False))
@QUICK
def test_the_order_in_which_a_set_was_filled_does_not_matter(
    members: list[Any], shuffler: random.Random
) -> None:
    shuffled = members[:]
    shuffler.shuffle(shuffled)
    # Equal members of different types would make the first one win: True, 1 and 1.0 are one in a set.
    assume(len(set(members)) == len({model(member) for member in members}))
    assert canonical(set(members)) == canonical(set(shuffled))


@given(st.dictionaries(st.text(max_size=4), RICH_SCALARS, max_size=6), st.randoms(use_true_random=False))
@QUICK
def test_the_order_of_keys_does_not_matter(mapping: dict[str, Any], shuffler: random.Random) -> None:
    items = list(mapping.items())
    shuffler.shuffle(items)
    assert canonical(dict(items)) == canonical(mapping)


@given(st.datetimes(timezones=OFFSETS), OFFSETS)
@QUICK
def test_one_instant_has_one_text_in_every_zone(moment: Any, zone: timezone) -> None:
    try:
        moved = moment.astimezone(zone)
    except OverflowError:
        assume(False)
    assert canonical(moved) == canonical(moment)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 30))
@QUICK
def test_trailing_zeros_of_a_decimal_do_not_matter(number: Decimal, zeros: int) -> None:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    padded = Decimal((sign, digits + (0,) * zeros, exponent - zeros))
    assert canonical(padded) == canonical(number)


@given(RICH)
@QUICK
def test_any_text_is_printable_ascii(value: object) -> None:
    text = canonical(value)
    assert text.isascii()
    assert text.isprintable()


@given(st.tuples(RICH, TEXT, RICH), st.tuples(RICH, TEXT, RICH))
@QUICK
def test_scope_lock_name_and_key_cannot_reach_into_each_other(
    left: tuple[Any, str, Any], right: tuple[Any, str, Any]
) -> None:
    texts = [text_of(scope, name, canonical(key)) for scope, name, key in (left, right)]
    assert (texts[0] == texts[1]) == (model(left) == model(right))


def test_the_model_of_equality_tells_apart_what_it_should() -> None:
    """The oracle itself: one that called everything equal, or nothing, would prove nothing."""
    assert model([1]) == model((1,))
    assert model(0.0) == model(-0.0)
    assert len({model(value) for value in (1, 1.0, True, "1", b"1", Decimal(1))}) == 6
    assert model(datetime(2026, 1, 1, tzinfo=UTC)) != model(1)
