"""Before and after the message: each serializer that carries a value leaves its canonical text alone."""

from __future__ import annotations

from typing import Any

import pytest
from kombu.exceptions import DecodeError, EncodeError
from kombu.serialization import dumps, loads

from django_jobdedup.fingerprint.canonical import canonical
from django_jobdedup.fingerprint.key import key_text

from .values import values

SERIALIZERS = ("json", "pickle", "yaml", "msgpack")

#: What a serializer refuses to send or to read; docs/reference/fingerprint.md says the same in words.
REFUSED = {
    "json": {
        *("set", "frozen sets", "timedelta", "enum", "flag", "dataclass", "own form"),
        *("dict of others", "decimal enum"),
    },
    "pickle": set(),
    "yaml": {
        *("named tuple", "ordered dict", "dict of others", "frozen sets", "uuid", "time", "time with offset"),
        *("decimal", "decimal huge", "decimal zero", "decimal nan", "decimal infinity", "timedelta"),
        *("enum", "text enum", "mixed enum", "int enum", "flag", "int flag", "decimal enum"),
        *("dataclass", "own form"),
    },
    "msgpack": {
        *("big", "huge", "lone surrogate", "dict of scalars", "dict of others", "set", "frozen sets"),
        *("decimal", "decimal huge", "decimal zero", "decimal nan", "decimal infinity", "uuid", "date"),
        *("time", "time with offset", "naive datetime", "aware datetime", "before the first year"),
        *("timedelta", "enum", "flag", "decimal enum", "dataclass", "own form"),
    },
}


def sent(args: Any, kwargs: Any, serializer: str) -> tuple[Any, Any]:
    """Return the arguments as a worker reads them."""
    content_type, encoding, data = dumps((args, kwargs, {}), serializer=serializer)
    received, named, _ = loads(data, content_type, encoding, accept=[content_type])
    return received, named


@pytest.mark.parametrize("serializer", SERIALIZERS)
@pytest.mark.parametrize("name", values())
def test_a_value_that_arrives_has_the_text_it_was_sent_with(name: str, serializer: str) -> None:
    value = values()[name]
    if name in REFUSED[serializer]:
        with pytest.raises((EncodeError, DecodeError)):
            sent([value], {}, serializer)
    else:
        received, named = sent([value], {"k": value}, serializer)
        assert canonical(received[0]) == canonical(named["k"]) == canonical(value)


def task(tenant_id: int, rows: Any, filters: Any = None) -> None: ...


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_web_and_worker_write_one_text_for_one_call(serializer: str) -> None:
    args, kwargs = (1, (2, (3.0, None))), {"filters": {"a": ("x", b"y"), "b": {"c": True}}}
    received, named = sent(args, kwargs, serializer)
    assert (received, named) != (args, kwargs) or serializer == "pickle", "else this shows nothing"
    assert key_text(task, received, named) == key_text(task, args, kwargs)


def test_two_surrogates_are_the_one_thing_that_json_changes() -> None:
    """JSON joins them to one character. The text keeps them apart: a duplicate is better than a loss."""
    (received,), _ = sent(["\ud83d\ude00"], {}, "json")
    assert received == "\U0001f600"
    assert canonical(received) != canonical("\ud83d\ude00")
