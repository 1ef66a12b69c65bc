"""Values without parts, as text.

Plain JSON values look as JSON writes them; every other type is written ``tag(...)``. A JSON text never
has a name before a bracket and strings are always quoted, so no value can imitate another. All text is
printable ASCII. Base-class methods are called unbound, so that a subclass cannot change its form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring_ascii
from typing import Any, Final
from uuid import UUID

from django_jobdedup.fingerprint.refusal import Refusal

#: Largest int written by ``int.__repr__``: 617 digits. The interpreter refuses more digits than a limit
#: that may be set as low as 640; ``Decimal`` writes the same digits and knows no limit.
SHORT_BITS: Final = 2048

_SURROGATE: Final = re.compile("([\ud800-\udfff])")
_SPECIAL: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_EPOCH: Final = datetime.fromisoformat("1970-01-01")
_MICROSECOND: Final = timedelta(microseconds=1)


def quoted(text: str) -> str:
    r"""Write a text in double quotes, as JSON does with ASCII only.

    A lone surrogate is ``\sd83d``, which JSON never writes: two of them are not the character that they
    would encode. No Unicode normalisation.
    """
    text = str.__str__(text)
    if not text.isascii() and _SURROGATE.search(text):
        parts = _SURROGATE.split(text)
        parts[::2] = [encode_basestring_ascii(part)[1:-1] for part in parts[::2]]
        parts[1::2] = [f"\\s{ord(part):x}" for part in parts[1::2]]
        return f'"{"".join(parts)}"'
    return encode_basestring_ascii(text)


def whole(value: int) -> str:
    """Write an int as its decimal digits, however many."""
    if int.bit_length(value) <= SHORT_BITS:
        return int.__repr__(value)
    return str(Decimal(value))


def real(value: float) -> str:
    """Write a float as JSON does, with the shortest digits that read back; ``-0.0`` is ``0.0``."""
    return key_real(value) if value else "0.0"


def key_real(value: float) -> str:
    """Write a float as ``json.dumps`` writes a key, where ``-0.0`` keeps its sign."""
    text = float.__repr__(value)
    return _SPECIAL.get(text, text)


def exact(value: Decimal) -> str:
    """Write a Decimal by value: digits without trailing zeros, and an exponent that is never expanded."""
    sign, digits, exponent = Decimal.as_tuple(value)
    minus = "-" if sign else ""
    if not isinstance(exponent, int):
        return f"decimal({minus}Infinity)" if exponent == "F" else "decimal(NaN)"
    text = "".join(map(str, digits))
    short = text.rstrip("0")
    return f"decimal({minus}{short}e{exponent + len(text) - len(short)})" if short else "decimal(0)"


def clock_time(value: time) -> str:
    """Write a time of day with its offset, if it has one."""
    if value.tzinfo is not None and value.utcoffset() is None:
        raise Refusal(
            "is a time in a zone whose offset depends on the day. Pass a datetime, or time and zone name"
        )
    return f"time({time.isoformat(value)})"


def duration(value: timedelta) -> str:
    """Write a timedelta as whole microseconds."""
    return f"timedelta({value // _MICROSECOND}us)"


def moment(value: datetime, offset: timedelta | None) -> str:
    """Write a datetime: naive as it stands, aware as its instant in UTC.

    An instant outside the years 1 to 9999 of UTC is written as microseconds since 1970.
    """
    plain = datetime.combine(datetime.date(value), datetime.time(value))
    if offset is None:
        return f"datetime({plain.isoformat()})"
    try:
        return f"datetime({(plain - offset).isoformat()}Z)"
    except OverflowError:
        return f"datetime({(plain - _EPOCH - offset) // _MICROSECOND}us)"


def raw(value: bytes | bytearray | memoryview) -> str:
    """Write bytes in hexadecimal."""
    return f"bytes({bytes(value).hex()})"


#: Exact type to the function that writes it.
SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    str: quoted,
    int: whole,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
    float: real,
    Decimal: exact,
    UUID: lambda value: f"uuid({UUID.__str__(value)})",
    date: lambda value: f"date({date.isoformat(value)})",
    time: clock_time,
    timedelta: duration,
    bytes: raw,
    bytearray: raw,
    memoryview: raw,
}
