"""A stored call is the whole call: the message that it becomes is the one that would have gone at once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from celery import signature
from hypothesis import given, settings
from hypothesis import strategies as st
from kombu import Exchange, Queue
from kombu.serialization import dumps, loads, registry

from django_jobdedup import StoredCallError
from django_jobdedup.call import HANGING, Call
from django_jobdedup.stored_call.codec import LARGEST, Head, Notes, arguments_of, decode, encode, head_of
from django_jobdedup.stored_call.parts import framed, parts, with_newest
from testproject.celery import app

JSON = "application/json"
TYPES = {
    "json": JSON,
    "pickle": "application/x-python-serialize",
    "yaml": "application/x-yaml",
    "msgpack": "application/x-msgpack",
}


@pytest.fixture(autouse=True)
def pickle_is_enabled() -> Iterator[None]:
    """Let kombu unpickle in this test; it refuses unless a project says so."""
    disabled = set(registry._disabled_content_types)
    registry.enable("pickle")
    yield
    registry._disabled_content_types |= disabled


def stored(call: Call, serializer: str = "json", notes: Notes | None = None, **options: Any) -> bytes:
    """Store a call."""
    accept = {TYPES[serializer]}
    return encode(call, notes or Notes(), serializer=serializer, accept=accept, **options)


def restored(call: Call, serializer: str = "json") -> Call:
    """Store a call and read it again."""
    return decode(stored(call, serializer), accept={TYPES[serializer]})[0]


def split(whole: bytes) -> tuple[list[bytes], list[bytes]]:
    """Cut a stored call into its two parts, each a line and data."""
    found = parts(whole)
    assert found is not None
    return found[0].split(b"\n", 1), found[1].split(b"\n", 1)


def joined(own: list[bytes], arguments: list[bytes]) -> bytes:
    """Put a stored call together again."""
    return framed(b"\n".join(own), b"\n".join(arguments))


def message(call: Call, serializer: str) -> tuple[Any, ...]:
    """Give what a worker would read of the message that a call becomes: headers, properties, body."""
    options = {"reply_to": "here", "root_id": "root", **call.options}
    named = (
        "expires",
        "chord",
        "time_limit",
        "soft_time_limit",
        "shadow",
        "chain",
        "group_id",
        "group_index",
    )
    known = {name: options.pop(name, None) for name in named}
    links = [options.pop(name, None) for name in ("link", "link_error")]
    links = [[link] if isinstance(link, dict) else link for link in links]
    made = app.amqp.as_task_v2(
        call.id, call.task, list(call.args), dict(call.kwargs),
        callbacks=links[0], errbacks=links[1], **known, **options,
    )  # fmt: skip
    content_type, encoding, body = dumps(made.body, serializer)
    headers = {name: value for name, value in made.headers.items() if name not in ("argsrepr", "kwargsrepr")}
    rest = {
        name: options.get(name) for name in ("queue", "priority", "headers", "compression", "delivery_mode")
    }
    return headers, made.properties, loads(body, content_type, encoding, accept={content_type}), rest


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=12)
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1)).map(lambda when: when.replace(tzinfo=UTC))
SIGNATURES = st.builds(
    lambda args, queue: signature("tests.next", args=args, options={"queue": queue}, immutable=True),
    st.lists(PLAIN, max_size=2),
    NAMES,
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "queue": NAMES,
        "exchange": NAMES,
        "routing_key": NAMES,
        "priority": st.integers(0, 9),
        "expires": MOMENTS,
        "eta": MOMENTS,
        "time_limit": st.integers(1, 100) | st.none(),
        "soft_time_limit": st.floats(1, 100),
        "link": SIGNATURES | st.lists(SIGNATURES, max_size=2),
        "link_error": st.lists(SIGNATURES, max_size=2),
        "chain": st.lists(SIGNATURES, max_size=2),
        "chord": SIGNATURES,
        "group_id": NAMES,
        "group_index": st.integers(0, 9),
        "root_id": NAMES,
        "parent_id": NAMES,
        "headers": st.dictionaries(NAMES, PLAIN, max_size=3),
        "ignore_result": st.booleans(),
        "compression": st.sampled_from(["zlib", "bzip2"]),
        "delivery_mode": st.sampled_from([1, 2]),
        "shadow": NAMES,
        "replaced_task_nesting": st.integers(0, 3),
    },
)
CALLS = st.builds(
    Call,
    task=NAMES,
    id=NAMES,
    args=st.lists(PLAIN, max_size=3).map(tuple),
    kwargs=st.dictionaries(NAMES, PLAIN, max_size=3),
    options=OPTIONS,
)


def test_a_serializer_that_does_not_exist_is_named() -> None:
    with pytest.raises(StoredCallError, match=r"there is no serializer 'jsn'; .*Did you mean \"json\"\?$"):
        encode(Call("a.b", "1", (1,)), Notes(), serializer="jsn", accept={"application/json"})


@pytest.mark.parametrize("serializer", TYPES)
@settings(max_examples=60, deadline=None)
@given(call=CALLS)
def test_the_message_is_the_one_that_would_have_gone_at_once(serializer: str, call: Call) -> None:
    """Nothing of a call is lost: arguments, links, place, times, limits, headers."""
    if serializer == "yaml":  # it writes no signatures, in a message neither
        call = replace(call, options={k: v for k, v in call.options.items() if k not in HANGING})
    assert message(restored(call, serializer), serializer) == message(call, serializer)


@given(
    notes=st.builds(
        Notes,
        promised=st.booleans(),
        by_celery=st.booleans(),
        plain=st.sampled_from(["", "observed"]),
        strategy=st.sampled_from([None, "skip", ["reschedule", {"after": 7.0}]]),
        typed=st.booleans(),
    )
)
def test_notes_travel(notes: Notes) -> None:
    """What decides over a call is read as it was written."""
    call, found = decode(stored(Call("a.b", "1"), notes=notes), accept={JSON})
    assert found == notes
    assert (call.promised, call.by_celery) == (notes.promised, notes.by_celery)


def test_values_that_kombu_knows_stay_what_they_are() -> None:
    """The serializer is the task's own, with its types."""
    values = (Decimal("1.50"), UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC), b"\x00\xff")
    assert restored(Call("a.b", "1", args=values)).args == values


@dataclass(frozen=True)
class Anything:
    """A value that only pickle carries."""


def test_pickle_keeps_what_only_pickle_can() -> None:
    """A project that accepts pickle stores what pickle stores."""
    assert restored(Call("a.b", "1", args=(Anything(), {1, 2})), "pickle").args == (Anything(), {1, 2})


def test_what_counts_from_now_becomes_an_instant() -> None:
    """A call that is published an hour later is due, and expires, when its caller said."""
    before = datetime.now(UTC)
    options = restored(Call("a.b", "1", options={"countdown": 60, "expires": 90}, due_in=60.0)).options
    eta, expires = (datetime.fromisoformat(options[name]) for name in ("eta", "expires"))
    assert before + timedelta(seconds=60) <= eta <= datetime.now(UTC) + timedelta(seconds=60)
    assert before + timedelta(seconds=90) <= expires <= datetime.now(UTC) + timedelta(seconds=90)
    assert "countdown" not in options


def test_a_due_time_is_counted_anew() -> None:
    """The rest of the time to wait is what is left when the call is read."""
    body = stored(Call("a.b", "1", due_in=1000.0))
    assert 990 < decode(body, accept={JSON})[0].due_in <= 1000
    own, arguments = split(body)
    own[0] = own[0].replace(str(head_of(body)[0].due).encode(), b"1.5")
    assert decode(joined(own, arguments), accept={JSON})[0].due_in == 0


def test_a_queue_travels_by_name() -> None:
    """An object of kombu's is the name that the publisher's app knows."""
    options = {"queue": Queue("fast"), "exchange": Exchange("jobs", type="topic")}
    found = restored(Call("a.b", "1", options=options)).options
    assert found == {"queue": "fast", "exchange": "jobs", "exchange_type": "topic"}


def test_what_belongs_to_this_process_is_left_out() -> None:
    """Who publishes has a producer and a result class of its own."""
    left = {"producer": object(), "result_cls": object(), "task_type": object(), "task_id": "1"}
    assert restored(Call("a.b", "1", options={**left, "priority": 3})).options == {"priority": 3}


@pytest.mark.parametrize("option", ["connection", "router", "declare"])
def test_another_destination_is_refused(option: str) -> None:
    """What is left out here would send the job elsewhere."""
    with pytest.raises(StoredCallError, match=f"option {option}= cannot be stored.*; .*"):
        stored(Call("a.b", "1", options={option: object()}))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (Call("a.b", "1", args=(1, object())), "its argument 2 cannot"),
        (Call("a.b", "1", kwargs={"x": 1, "y": object()}), "its argument y= cannot"),
        (Call("a.b", "1", options={"priority": 1, "on_return": print}), "its option on_return= cannot"),
    ],
)
def test_the_culprit_is_named(call: Call, named: str) -> None:
    """An argument or option that the serializer cannot carry is an error that names it."""
    with pytest.raises(StoredCallError, match=f"a.b was not queued: {named} be stored"):
        stored(call)


def test_a_call_that_nobody_would_read_is_refused() -> None:
    """A serializer that accept_content does not list writes what no relay may open."""
    with pytest.raises(StoredCallError, match="accept_content does not list"):
        encode(Call("a.b", "1"), Notes(), serializer="pickle", accept={JSON})


def test_nothing_is_unpickled_that_is_not_accepted() -> None:
    """A row from a project that accepted pickle is not opened by one that does not."""
    body = stored(Call("a.b", "1", args=(Bomb(),)), "pickle")
    with pytest.raises(StoredCallError, match="accept_content does not list"):
        decode(body, accept={JSON})
    swapped = body.replace(TYPES["pickle"].encode(), JSON.encode())
    with pytest.raises(StoredCallError, match="cannot be read"):
        decode(swapped, accept={JSON})


class Bomb:
    """Goes off when it is unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("somebody has unpickled it",)


def test_a_bomb_goes_off() -> None:
    """The test above could fail."""
    with pytest.raises(pytest.fail.Exception):
        pickle.loads(pickle.dumps(Bomb()))


def test_a_call_may_be_large_but_not_huge() -> None:
    """A megabyte of arguments is stored, the limit is said before anything is written."""
    assert restored(Call("a.b", "1", args=("x" * 1_000_000,))).args == ("x" * 1_000_000,)
    with pytest.raises(StoredCallError, match=f"at most {LARGEST:,} are kept. Store the data elsewhere"):
        stored(Call("a.b", "1", args=("x" * LARGEST,)))
    with pytest.raises(StoredCallError, match="at most 100 are kept"):
        stored(Call("a.b", "1", args=("x" * 100,)), largest=100)


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b"\xff\n[]", b"[1]\n", b'{"v": 2}\n{}', b"0\n", b"9\n{}", b'8\n{"v": 2}\n{}']
)
def test_bytes_that_are_no_stored_call(damage: bytes) -> None:
    """A damaged row says so."""
    with pytest.raises(StoredCallError, match="cannot be read"):
        decode(damage, accept={JSON})


@pytest.mark.parametrize("body", [b"", b"[1, 2, 3]", b'"abc"', b"7", b"nothing"])
@pytest.mark.parametrize("part", [0, 1], ids=["options", "arguments"])
def test_a_part_that_is_none(part: int, body: bytes) -> None:
    """A damaged part says so, with the id of the call."""
    whole = split(stored(Call("a.b", "one")))
    whole[part][1] = body
    with pytest.raises(StoredCallError, match=r"stored call one of a\.b cannot be read"):
        decode(joined(*whole), accept={JSON})


@pytest.mark.parametrize("line", [b"", b"{}", b"[1]", b"\xff", b'{"type": 1, "encoding": 2}'])
def test_a_damaged_line_of_arguments(line: bytes) -> None:
    """It says so as well."""
    own, arguments = split(stored(Call("a.b", "one")))
    with pytest.raises(StoredCallError, match=r"stored call one of a\.b"):
        decode(joined(own, [line, arguments[1]]), accept={JSON})


@pytest.mark.parametrize("damaged", ["frame", "head", "options", "arguments"])
def test_an_error_does_not_quote_the_arguments(damaged: str) -> None:
    """It goes into a row and into the log."""
    whole = stored(Call("a.b", "one", args=("secret",)))
    own, arguments = split(whole)
    broken = {
        "frame": b"\xff" + whole,
        "head": joined([b"\xff" + own[0], own[1]], arguments),
        "options": joined([own[0], own[1] + b"\xff"], arguments),
        "arguments": joined(own, [arguments[0], arguments[1] + b"\xff"]),
    }[damaged]
    with pytest.raises(StoredCallError, match="cannot be read") as told:
        decode(broken, accept={JSON})
    assert "secret" not in str(told.value)


def test_a_later_format_is_not_guessed_at() -> None:
    """A row of a newer version waits for a newer process."""
    own, arguments = split(stored(Call("a.b", "1")))
    newer = json.dumps({**json.loads(own[0]), "v": 3}).encode()
    with pytest.raises(StoredCallError, match="has format 3; this version reads 2"):
        decode(joined([newer, own[1]], arguments), accept={JSON})


def test_a_call_in_one_part_is_of_the_first_format() -> None:
    """That one was never released."""
    with pytest.raises(StoredCallError, match="has format 1; this version reads 2"):
        decode(b'{"v":1,"task":"a.b"}\n[[],{},{}]', accept={JSON})


# Newer arguments


def test_a_call_that_joins_gives_its_arguments_and_nothing_else() -> None:
    """Queue, expiry and callbacks are those of the job that was accepted."""
    own = Call("a.b", "one", args=(1,), options={"queue": "own", "expires": 60, "link": {"task": "next"}})
    other = Call("a.b", "two", args=(2,), kwargs={"x": 3}, options={"queue": "other", "priority": 9})
    call, notes = decode(with_newest(stored(own, notes=Notes(promised=True)), stored(other)), accept={JSON})
    assert (call.id, call.args, call.kwargs) == ("one", (2,), {"x": 3})
    assert notes.promised
    assert call.options.keys() == {"queue", "expires", "link"}
    assert call.options["queue"] == "own"


def test_the_arguments_keep_the_serializer_that_wrote_them() -> None:
    """Of several calls each may have its own; each is read only where the project accepts it."""
    both = with_newest(stored(Call("a.b", "one")), stored(Call("a.b", "two", args=({1},)), "pickle"))
    assert decode(both, accept={JSON, TYPES["pickle"]})[0].args == ({1},)
    with pytest.raises(StoredCallError, match=r"x-python-serialize, which accept_content does not list"):
        decode(both, accept={JSON})
    with pytest.raises(StoredCallError, match=r"x-python-serialize, which accept_content does not list"):
        arguments_of(both, accept={JSON})


@pytest.mark.parametrize("nothing", [None, b"", b"?"])
def test_a_job_of_which_no_call_is_stored_is_lent_the_whole(nothing: bytes | None) -> None:
    """Better than a message that nobody could publish."""
    lent = stored(Call("a.b", "two", args=(2,)))
    assert with_newest(nothing, lent) == lent
    assert with_newest(lent, b"?") == b"?", "bytes without parts are taken as they are"


@given(own=st.binary(), arguments=st.binary())
@settings(max_examples=50, deadline=None)
def test_any_bytes_are_a_part(own: bytes, arguments: bytes) -> None:
    """Whatever a serializer writes, line ends and digits included."""
    assert parts(framed(own, arguments)) == (own, arguments)


def test_the_first_line_can_be_read_alone() -> None:
    """People see whose call it is without a serializer."""
    head = head_of(stored(Call("a.b", "one"), "pickle", Notes(promised=True)))[0]
    assert head == Head("a.b", "one", TYPES["pickle"], "binary", 0.0, Notes(promised=True))


def test_the_call_itself_stays_as_it_was() -> None:
    """Storing a call changes nothing in it."""
    options = {"countdown": 5, "queue": Queue("fast")}
    call = Call("a.b", "1", options=options)
    copy = replace(call, options=dict(options))
    stored(call)
    assert call == copy
