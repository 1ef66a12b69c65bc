"""The table of values, one of each kind, without Django: other interpreters print it too."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django_jobdedup.fingerprint.canonical import canonical
from django_jobdedup.fingerprint.digest import fingerprint, text_of
from django_jobdedup.fingerprint.key import key_text


class Level(Enum):
    LOW = 1
    NAMED = "low"


class Colour(StrEnum):
    RED = "red"


class Mixed(str, Enum):  # noqa: UP042 - differs from StrEnum in str()
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Right(Flag):
    READ = 1
    WRITE = 2


class Bit(IntFlag):
    A = 1
    B = 2


class Price(Decimal, Enum):
    LOW = "1.50"


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    label: str = ""
    seen: int = field(default=0, compare=False)


class Money:
    """A class with a form of its own."""

    def __init__(self, amount: object, currency: str) -> None:
        self.amount, self.currency = amount, currency

    def __fingerprint__(self) -> object:
        return [self.amount, self.currency]


Pair = namedtuple("Pair", "left right")

INSTANT = datetime(2026, 8, 1, 12, 30, 15, 250, tzinfo=UTC)


def values() -> dict[str, Any]:
    """Return name to value, each made anew."""
    return {
        "null": None,
        "true": True,
        "false": False,
        "one": 1,
        "negative": -42,
        "big": 2**64,
        "huge": 10**700,
        "real one": 1.0,
        "real": 0.1,
        "small": 5e-324,
        "large": 1.7976931348623157e308,
        "minus zero": -0.0,
        "nan": float("nan"),
        "infinity": float("inf"),
        "minus infinity": float("-inf"),
        "empty text": "",
        "text": 'a "quoted" \\ back\nslash\x00\x7f',
        "accents": "é e\u0301 \u4e2d \U0001f600",
        "lone surrogate": "a\ud800b",
        "list": [1, [2.5, "3"], []],
        "tuple": (1, (2.5, "3"), ()),
        "named tuple": Pair(1, "r"),
        "dict": {"b": 1, "a": {"z": None}},
        "dict of scalars": {1: "a", None: "b", False: "c", 1.5: "d", float("nan"): "e"},
        "dict of others": {UUID(int=7): 1, (1, 2): 2, date(2026, 8, 1): 3},
        "ordered dict": OrderedDict(z=1, a=2),
        "set": {"b", "a", 10, 9, None},
        "frozen sets": frozenset({frozenset({1}), frozenset()}),
        "bytes": b"\x00\xff(",
        "decimal": Decimal("-10.50"),
        "decimal huge": Decimal("1E+999999"),
        "decimal zero": Decimal("-0.00"),
        "decimal nan": Decimal("NaN"),
        "decimal infinity": Decimal("-Infinity"),
        "uuid": UUID("12345678-1234-5678-1234-567812345678"),
        "date": date(2026, 8, 1),
        "time": time(12, 30),
        "time with offset": time(12, 30, 1, 5, tzinfo=timezone(timedelta(hours=2))),
        "naive datetime": datetime(2026, 8, 1, 12, 30),
        "aware datetime": INSTANT.astimezone(ZoneInfo("Europe/Berlin")),
        "before the first year": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        "timedelta": timedelta(days=-1, microseconds=1),
        "enum": Level.LOW,
        "text enum": Colour.RED,
        "mixed enum": Mixed.RED,
        "int enum": Number.ONE,
        "flag": Right.READ | Right.WRITE,
        "int flag": Bit.A | Bit.B,
        "decimal enum": Price.LOW,
        "dataclass": Point(1.0, -2.5, "p"),
        "own form": Money(Decimal("1.0"), "EUR"),
    }


def report(tenant_id: int, period: str = "2026-08", *, draft: bool = False) -> None: ...


def printed() -> str:
    """Return as JSON what must be the same in every process and on every supported Python."""
    texts = {name: canonical(value) for name, value in values().items()}
    return json.dumps(
        {
            "texts": texts,
            "hashes": {name: fingerprint(text_of(None, name, text)) for name, text in texts.items()},
            "call": text_of({"tenant": "acme"}, "shop.report", key_text(report, (42,), {"draft": True})),
        }
    )
