"""The table of values: what is equal, what differs, what has no form and how that is said."""

from __future__ import annotations

import inspect
import io
import itertools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from django_jobdedup.exceptions import FingerprintError
from django_jobdedup.fingerprint.canonical import MAX_DEPTH, canonical, canonical_arguments

from .values import Bit, Colour, Level, Mixed, Money, Number, Pair, Point, Price, Right, values

BERLIN, TOKYO = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")
NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Flagged(int):
    def __repr__(self) -> str:
        return "something else"


@dataclass
class Node:
    owner: Any


@dataclass(slots=True)
class Half:
    owner: Any = field(init=False)


@pytest.mark.parametrize(
    "group",
    [
        [(1, (2,)), [1, [2]], Pair(1, (2,))],
        [{1: "a"}, {"1": "a"}, OrderedDict({"1": "a"}), defaultdict(str, {"1": "a"})],
        [{None: 1}, {"null": 1}],
        [{True: 1}, {"true": 1}],
        [{1.5: 1}, {"1.5": 1}],
        [{float("inf"): 1}, {"Infinity": 1}],
        [{-0.0: 1}, {"-0.0": 1}],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [Counter("aab"), {"a": 2, "b": 1}],
        [0.0, -0.0],
        [float("nan"), float("-nan"), float("inf") - float("inf")],
        [{float("nan")}, {float("nan"), float("inf") - float("inf")}],
        [Decimal("1"), Decimal("1.0"), Decimal("1.00"), Decimal("1e0"), Decimal((0, (0, 0, 1), 0))],
        [Decimal("0"), Decimal("-0"), Decimal("0.000"), Decimal("0E+10")],
        [Decimal("NaN"), Decimal("-NaN"), Decimal("NaN7"), Decimal("sNaN")],
        [Decimal("1000"), Decimal("1E+3")],
        [NOON, NOON.astimezone(BERLIN), NOON.astimezone(TOKYO)],
        [{"a", "b"}, {"b", "a"}, frozenset("ba")],
        [b"ab", bytearray(b"ab"), memoryview(b"ab"), memoryview(b"a-b-")[::2]],
        [timedelta(hours=1), timedelta(minutes=60), timedelta(days=1, hours=-23)],
        ["red", Colour.RED, Mixed.RED],
        [1, Number.ONE, Bit.A, Flagged(1)],
        [Decimal("1.5"), Price.LOW],
        ["text", Text("text")],
        [Point(1.0, 2.0, seen=1), Point(1.0, 2.0, seen=2)],
        [Money(5, "EUR"), [5, "EUR"], (5, "EUR")],
        [UUID(int=1), UUID("00000000000000000000000000000001")],
    ],
    ids=lambda group: "set" if isinstance(group[0], set) else repr(group[0])[:40],
)
def test_values_equal_for_the_user_have_equal_text(group: list[object]) -> None:
    assert len({canonical(value) for value in group}) == 1


DIFFERENT = {
    **{
        name: value
        for name, value in values().items()
        if name not in {"text enum", "int enum", "named tuple"}
    },
    "text one": "1",
    "text true": "true",
    "text null": "null",
    "text NaN": "NaN",
    "text list": "[1]",
    "list one": [1],
    "list of text": ["1"],
    "list of list": [[1]],
    "two in a text": '1","2',
    "two texts": ["1", "2"],
    "set one": {1},
    "text set": "set(1)",
    "empty dict": {},
    "empty list": [],
    "empty set": set(),
    "one key": {"a": "1_b-2"},
    "two keys": {"a": 1, "b": 2},
    "two text keys": {"a": "1", "b": "2"},
    "uuid as text": "12345678-1234-5678-1234-567812345678",
    "uuid as int": 0x12345678123456781234567812345678,
    "decimal one": Decimal(1),
    "text decimal": "decimal(1e0)",
    "date as text": "2026-08-01",
    "midnight": datetime(2026, 8, 1),
    "midnight UTC": datetime(2026, 8, 1, tzinfo=UTC),
    "time of midnight": time(0),
    "bytes as text": "00ff28",
    "empty bytes": b"",
    "upper case": "A",
    "lower case": "a",
    "trailing space": "a ",
    "zero width": "a\u200b",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "one character": "\U0001f600",
    "two surrogates": "\ud83d\ude00",
    "escaped surrogate": "\\sd83d",
    "escaped character": "\\u00e9",
    "same local time, other offset": time(12, 30, tzinfo=timezone(timedelta(hours=1))),
    "local time without offset": time(12, 30, 1, 5),
    "uuid key": {UUID(int=7): 1},
    "text like a uuid key": {str(UUID(int=7)): 1},
    "other enum": Level.NAMED,
    "other class": Node(1),
    "fields as dict": {"owner": 1},
    "later microsecond": NOON + timedelta(microseconds=1),
    "noon": NOON,
}


def test_values_that_differ_for_the_user_have_different_text() -> None:
    """Every pair of some ninety values; among them all that once collided in libraries that join texts."""
    equal = {("list", "tuple"), ("text enum", "mixed enum")}
    texts = {name: canonical(value) for name, value in DIFFERENT.items()}
    for (a, left), (b, right) in itertools.combinations(texts.items(), 2):
        assert left != right or (a, b) in equal or (a, b) in {("one", "int enum"), ("flag", "int flag")}, (
            a,
            b,
        )


@pytest.mark.parametrize("value", DIFFERENT.values(), ids=DIFFERENT)
def test_text_is_printable_ascii(value: object) -> None:
    text = canonical(value)
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [1, 2.0, "x"], "a": None}, '{"a":null,"b":[1,2.0,"x"]}'),
        ({"b", "a"}, 'set("a","b")'),
        (Decimal("-1.50"), "decimal(-15e-1)"),
        (NOON.astimezone(TOKYO), "datetime(2026-08-01T12:00:00Z)"),
        (Level.LOW, 'enum("tests.fingerprint.values.Level",1)'),
        (Right.READ | Right.WRITE, 'enum("tests.fingerprint.values.Right",3)'),
        (Point(0.5, -0.0), 'dataclass("tests.fingerprint.values.Point",{"label":"","x":0.5,"y":0.0})'),
    ],
)
def test_text_can_be_read(value: object, text: str) -> None:
    assert canonical(value) == text


def test_an_int_of_any_length_is_exact_whatever_the_interpreter_allows() -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        for power in (616, 617, 639, 640, 641, 5000):
            assert canonical(10**power + 1) == "1" + "0" * (power - 1) + "1"
            assert canonical({-(10**power): 1}) == f'{{"-1{"0" * power}":1}}'
    finally:
        sys.set_int_max_str_digits(limit)


def test_a_huge_exponent_is_not_expanded() -> None:
    assert len(canonical(Decimal("1E+999999999999999999"))) < 50
    assert canonical(Decimal("1E-999999999")) == "decimal(1e-999999999)"


def test_decimal_digits_beyond_the_context_precision_count() -> None:
    assert canonical(Decimal("1." + "0" * 60 + "1")) != canonical(Decimal("1." + "0" * 60 + "2"))


def test_instants_at_the_ends_of_the_calendar_have_a_form() -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    first, last = datetime(1, 1, 1, tzinfo=east), datetime(9999, 12, 31, 23, 59, tzinfo=west)
    other = datetime(1, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=14, minutes=30)))
    assert canonical(first) == canonical(other)
    assert len({canonical(first), canonical(last), canonical(first + timedelta(microseconds=1))}) == 3


def test_the_two_readings_of_an_hour_that_comes_twice_differ() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    assert canonical(first) == "datetime(2026-10-25T00:30:00Z)"
    assert canonical(first.replace(fold=1)) == "datetime(2026-10-25T01:30:00Z)"


def test_a_million_characters_are_fine() -> None:
    assert canonical("x" * 10**6) != canonical("x" * (10**6 - 1) + "y")


def test_arguments_have_the_text_of_the_equal_dict() -> None:
    arguments = {"tenant_id": 1, "a": [NOON], "é": None, "z": {}}
    assert canonical_arguments(arguments) == canonical(arguments)


def no_function() -> None: ...


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (object(), "key=[...]"),
        (lambda: 1, "dotted path"),
        (no_function, "dotted path"),
        (print, "dotted path"),
        ("".join, "dotted path"),
        (Point, "dotted path"),
        (int, "dotted path"),
        (Level, "dotted path"),
        (io.BytesIO(), "name of the file"),
        (io.StringIO(), "name of the file"),
        (iter([1]), "Pass a list"),
        ((x for x in [1]), "Pass a list"),
        (range(3), "Pass a list"),
        (map(str, [1]), "Pass a list"),
        (deque([1]), "key=[...]"),
        (PurePosixPath("/a"), "str(path)"),
        (1j, "__fingerprint__"),
        (sys, "key=[...]"),
        (ValueError("x"), "key=[...]"),
        (time(12, tzinfo=BERLIN), "Pass a datetime"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_without_a_form_is_refused_and_told_what_to_pass(value: object, advice: str) -> None:
    with pytest.raises(FingerprintError) as caught:
        canonical_arguments({"x": 1, "rows": value})
    assert caught.value.argument == "rows"
    assert str(caught.value).startswith("Argument rows is ")
    assert advice in str(caught.value)
    assert "0x" not in str(caught.value), "an address is of no use to anybody"


def test_an_iterator_is_not_used_up_by_being_refused() -> None:
    numbers = iter([1, 2])
    with pytest.raises(FingerprintError):
        canonical(numbers)
    assert list(numbers) == [1, 2]


def test_an_array_library_gets_its_own_advice() -> None:
    scalar = type("int64", (), {"__module__": "numpy"})()
    with pytest.raises(FingerprintError, match=r"Pass value.item\(\) or value.tolist\(\)"):
        canonical(scalar)


class Odd(Enum):
    THING = object()


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda bad: {"rows": [0, 1, 2, Node(bad)]}, "rows[3].owner"),
        (lambda bad: {"filters": {"x": bad}}, "filters['x']"),
        (lambda bad: {"filters": {7: {None: bad}}}, "filters[7][None]"),
        (lambda bad: {"filters": {(1, 2): bad}}, "filters[tuple]"),
        (lambda bad: {"filters": {bad: 1}}, "filters[object]"),
        (lambda bad: {"filters": {10**5000: bad}}, "filters[1" + "0" * 39 + "]"),
        (lambda bad: {"tags": {1, bad}}, "tags{...}"),
        (lambda bad: {"price": Money(bad, "EUR")}, "price.__fingerprint__()[0]"),
        (lambda bad: {"odd": Odd.THING}, "odd.value"),
        (lambda bad: {"half": Half()}, "half.owner"),
        (lambda bad: {"a": 1, "b": [[[[[[[[[[bad]]]]]]]]]]}, "b" + "[0]" * 7 + "..."),
    ],
)
def test_the_error_names_the_path_to_the_value(make: Callable[[object], dict[str, Any]], path: str) -> None:
    with pytest.raises(FingerprintError) as caught:
        canonical_arguments(make(object()))
    assert caught.value.argument == path
    assert f"Argument {path} " in str(caught.value)


def test_a_single_value_is_named_by_the_caller() -> None:
    with pytest.raises(FingerprintError, match=r"Argument key\[0\] is "):
        canonical([object()], "key")


def test_an_error_shows_no_value() -> None:
    with pytest.raises(FingerprintError) as caught:
        canonical_arguments({"card": ["4111-1111", object()]})
    assert "4111" not in str(caught.value)


@pytest.mark.parametrize(
    "pair", [{1: "a", "1": "b"}, {None: 1, "null": 2}, {True: 1, "true": 2}, {1.0: 1, "1.0": 2}]
)
def test_two_keys_that_json_makes_one_are_refused(pair: dict[Any, Any]) -> None:
    with pytest.raises(FingerprintError, match="two keys that JSON writes the same way") as caught:
        canonical_arguments({"filters": pair})
    assert caught.value.argument is not None
    assert caught.value.argument.startswith("filters[")


NAIVE = datetime(2026, 8, 1)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"since": NAIVE, "until": NOON}, "since"),
        ({"since": NOON, "until": NAIVE}, "until"),
        ({"a": {"x": [NOON]}, "b": [1, NAIVE]}, "b[1]"),
        ({"a": {NAIVE: 1}, "b": NOON}, "a[datetime]"),
    ],
)
def test_a_naive_datetime_beside_aware_ones_is_refused_by_name(arguments: dict[str, Any], path: str) -> None:
    with pytest.raises(FingerprintError, match=r"naive datetime beside aware ones.*make_aware") as caught:
        canonical_arguments(arguments)
    assert caught.value.argument == path


def test_naive_datetimes_alone_have_a_form() -> None:
    assert canonical([NAIVE, NAIVE]) == "[datetime(2026-08-01T00:00:00),datetime(2026-08-01T00:00:00)]"
    assert canonical([NAIVE, date(2026, 8, 1)]).startswith("[datetime(")


def cycles() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    mapping: dict[str, Any] = {}
    mapping["self"] = mapping
    node = Node(None)
    node.owner = (node,)
    money = Money(None, "EUR")
    money.amount = money
    return [inner, mapping, node, money]


@pytest.mark.parametrize("value", cycles(), ids=["list", "dict", "dataclass", "own form"])
def test_a_value_that_contains_itself_is_refused(value: object) -> None:
    with pytest.raises(FingerprintError, match="contains itself") as caught:
        canonical_arguments({"tree": value})
    assert str(caught.value.argument).startswith("tree")
    assert len(str(caught.value)) < 400


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_nesting_has_a_limit_of_its_own() -> None:
    assert canonical(nested(MAX_DEPTH)) == "[" * MAX_DEPTH + "]" * MAX_DEPTH
    for levels in (MAX_DEPTH + 1, 100_000):
        deep = nested(levels)
        with pytest.raises(FingerprintError, match="nested deeper than 100 levels"):
            canonical(deep)
        while deep:  # take it apart: freeing it at once would recurse
            deep = deep.pop()


def test_a_stack_that_is_nearly_full_ends_in_the_same_error() -> None:
    def descend(levels: int) -> str:
        return descend(levels - 1) if levels else canonical(nested(90))

    frames = len(inspect.stack())
    with pytest.raises(FingerprintError, match="nested deeper"):
        descend(sys.getrecursionlimit() - frames - 60)


def test_an_error_inside_an_own_form_passes() -> None:
    class Broken:
        def __fingerprint__(self) -> object:
            raise LookupError("no currency")

    with pytest.raises(LookupError, match="no currency"):
        canonical(Broken())


def test_a_value_that_lies_about_its_class_is_refused() -> None:
    class Liar:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return str

    assert isinstance(Liar(), str)
    with pytest.raises(FingerprintError, match="Liar"):
        canonical(Liar())


def test_a_key_with_an_own_form_cannot_imitate_another_key() -> None:
    class Sly(int):
        def __fingerprint__(self) -> object:
            return '":0,"b'

    assert canonical({Sly(1): 2}) == '{"1":2}'
