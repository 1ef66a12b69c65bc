"""The message header: its form on the wire for format 1, what it passes over, what it refuses."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields, replace

import msgpack
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from django_jobdedup.call import Call, is_untouched, untouched
from django_jobdedup.header import FORMAT, WIRE, Header, Knobs, decode_knobs, encode_knobs, task_id_of

FINGERPRINT = "ab" * 32

# What workers of every release read for format 1. A change here needs a new format, in two releases.
GOLDEN = [
    pytest.param(Header(id="the-id"), '{"v":1,"id":"the-id"}', id="bypass"),
    pytest.param(
        Header(id="the-id", shard=7, locks=((FINGERPRINT, Knobs(name="shop.tasks.report")),)),
        f'{{"v":1,"id":"the-id","s":7,"k":[["{FINGERPRINT}",{{"b":"shop.tasks.report"}}]]}}',
        id="defaults",
    ),
    pytest.param(
        Header(
            id="the-id",
            shard=15,
            locks=(
                (
                    FINGERPRINT,
                    Knobs(
                        lock="until_expired",
                        name="reports",
                        counts="PWRK",
                        limit=2,
                        gate=3,
                        ttl=72_000.0,
                        lease=3.5,
                        keeps=True,
                        keep_on_failure=True,
                        at_dispatch=False,
                        max_starts=5,
                        execution=["reschedule", {"after": 9.0}],
                        on_store_error="raise",
                        store="locks",
                    ),
                ),
            ),
            n=2,
            at=1_790_000_000.25,
            put_offs=3,
            refused_by="the-holder",
            woken=True,
            asleep_until=1_790_000_900.5,
        ),
        f'{{"v":1,"id":"the-id","s":15,"k":[["{FINGERPRINT}",{{"l":"until_expired","b":"reports","c":"PWRK",'
        '"m":2,"g":3,"t":72000.0,"e":3.5,"k":true,"f":true,"d":false,"q":5,'
        '"x":["reschedule",{"after":9.0}],"r":"raise","a":"locks"}]],'
        '"n":2,"at":1790000000.25,"p":3,"by":"the-holder","w":1,"z":1790000900.5}',
        id="everything",
    ),
]

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=8)
fingerprints = st.text("0123456789abcdef", min_size=64, max_size=64)
durations = st.floats(0.001, 1e8)
some_knobs = st.builds(
    Knobs,
    lock=texts,
    name=texts,
    counts=st.sampled_from(["", "PW", "PWR", "PWRK"]),
    limit=st.integers(1, 9),
    gate=st.integers(0, 9),
    ttl=durations,
    lease=st.floats(1.0, 1e8),
    keeps=st.booleans(),
    keep_on_failure=st.booleans(),
    at_dispatch=st.booleans(),
    max_starts=st.integers(0, 9),
    execution=st.sampled_from(["reschedule", "log", ["reschedule", {"after": 9.0}]]),
    on_store_error=st.sampled_from(["proceed", "raise"]),
    store=texts,
)
headers = st.builds(
    Header,
    id=texts,
    shard=st.integers(0, 99),
    locks=st.lists(st.tuples(fingerprints, some_knobs), min_size=1, max_size=1).map(tuple),
    n=st.integers(0, 2**31),
    at=st.floats(0, 4e9),
    put_offs=st.integers(0, 999),
    refused_by=texts,
    asleep_until=st.floats(0, 4e9),
)


@pytest.mark.parametrize(("header", "wire"), GOLDEN)
def test_the_wire_form_of_format_1_never_changes(header, wire):
    assert json.dumps(header.encode(), separators=(",", ":")) == wire
    assert Header.decode(json.loads(wire)) == header


@pytest.mark.parametrize(
    "through",
    [
        pytest.param(lambda wire: json.loads(json.dumps(wire)), id="json"),
        pytest.param(lambda wire: pickle.loads(pickle.dumps(wire)), id="pickle"),
        pytest.param(lambda wire: yaml.safe_load(yaml.safe_dump(wire)), id="yaml"),
        pytest.param(lambda wire: msgpack.unpackb(msgpack.packb(wire)), id="msgpack"),
    ],
)
@given(header=headers)
def test_a_header_survives_every_serializer(through, header):
    assert Header.decode(through(header.encode())) == header


def test_every_knob_has_a_letter_of_its_own():
    assert list(WIRE) == [each.name for each in fields(Knobs)]
    assert len(set(WIRE.values())) == len(WIRE)


def test_knobs_that_are_defaults_do_not_travel():
    assert encode_knobs(Knobs()) == {}
    assert decode_knobs({}) == Knobs()


def test_the_defaults_of_format_1_never_change():
    """They do not travel, so an older worker reads its own."""
    assert Knobs() == Knobs(
        lock="until_executed",
        name="",
        counts="PWR",
        limit=1,
        gate=1,
        ttl=5400.0,
        lease=30.0,
        keeps=False,
        keep_on_failure=False,
        at_dispatch=True,
        max_starts=0,
        execution="reschedule",
        on_store_error="proceed",
        store="default",
    )


def test_keys_of_a_later_version_are_passed_over():
    wire = {"v": 1, "id": "a", "zz": 3, "k": [[FINGERPRINT, {"t": 9.0, "zz": [1]}]]}

    assert Header.decode(wire) == Header(id="a", locks=((FINGERPRINT, Knobs(ttl=9.0)),))


@pytest.mark.parametrize(
    "wire",
    [
        None,
        "",
        [],
        3,
        {},
        {"id": "a"},
        {"v": 1},
        {"v": 2, "id": "a"},
        {"v": "1", "id": "a"},
        {"v": FORMAT, "id": 3},
        {"v": FORMAT, "id": None},
        {"v": FORMAT, "id": "a", "s": "seven"},
        {"v": FORMAT, "id": "a", "s": None},
        {"v": FORMAT, "id": "a", "k": 3},
        {"v": FORMAT, "id": "a", "k": None},
        {"v": FORMAT, "id": "a", "k": [FINGERPRINT]},
        {"v": FORMAT, "id": "a", "k": [[FINGERPRINT]]},
        {"v": FORMAT, "id": "a", "k": [[FINGERPRINT, {}, 3]]},
        {"v": FORMAT, "id": "a", "k": [[FINGERPRINT, 3]]},
        {"v": FORMAT, "id": "a", "k": [[FINGERPRINT, None]]},
        {"v": FORMAT, "id": "a", "n": "x"},
        {"v": FORMAT, "id": "a", "n": []},
        {"v": FORMAT, "id": "a", "at": {}},
        {"v": FORMAT, "id": "a", "p": "x"},
    ],
    ids=repr,
)
def test_what_is_no_header_of_ours_is_none(wire):
    assert Header.decode(wire) is None


def test_a_header_speaks_of_its_first_lock():
    header = Header(id="a", locks=((FINGERPRINT, Knobs(name="b")), ("cd" * 32, Knobs(name="c"))))

    assert header.fingerprint == FINGERPRINT
    assert header.knobs.name == "b"


def test_a_header_without_locks_says_bypass():
    assert Header(id="a").fingerprint == ""
    assert Header(id="a").locks == ()


def test_calls_do_not_share_their_options():
    first, second = Call(task="a", id="1"), Call(task="a", id="2")

    assert first.options == second.options == {}
    assert first.options is not second.options


def test_untouched_holds_within_its_block_and_nests():
    assert not is_untouched()
    with untouched():
        with untouched():
            assert is_untouched()
        assert is_untouched()
    assert not is_untouched()


def test_untouched_ends_when_its_block_fails():
    with pytest.raises(ZeroDivisionError), untouched():
        _ = 1 / 0
    assert not is_untouched()


@pytest.mark.parametrize(
    "broken",
    [
        {"n": float("inf")},
        {"s": 10**400, "at": 10**400},
        {"k": [["f" * 64, {"t": "abc"}]]},
        {"k": [["f" * 64, []]]},
        {"k": [["f" * 64, {"l": 5}]]},
        {"k": [["f" * 64]]},
        {"k": 7},
        {"s": 100},
        {"s": -1},
        {"k": [["f" * 63, {}]]},
        {"k": [["F" * 64, {}]]},
        {"k": [["f" * 63 + "\x00", {}]]},
        {"k": [["f" * 64, {"b": "shop\x00"}]]},
        {"k": [["f" * 64, {"b": "\ud800"}]]},
        {"k": [["f" * 64, {"e": 0.5}]]},
        {"id": "a\x1fb"},
        {"u": "\ud800"},
        {"u": 5},
        {"by": "a\nb"},
        {"follow": "\x00"},
        {"mark": []},
    ],
)
def test_a_header_with_a_value_of_another_kind_is_none_of_ours(broken):
    """Garbage in a message never raises in a worker's main process, or in the stores that it asks."""
    assert Header.decode({"v": 1, "id": "x", **broken}) is None


def test_a_call_with_other_options_is_the_same_in_all_else() -> None:
    call = Call(**{each.name: object() for each in fields(Call)})
    header = Header("id")
    assert call.carrying({"queue": "q"}, header) == replace(call, options={"queue": "q"}, reserved=header)


def test_the_time_of_the_acceptance_is_set_once() -> None:
    knobs = Knobs(name="shop.recompute")
    header = Header("id", 3, (("f" * 64, knobs),), 1, 0.0, 2, "other")
    assert header.accepted(5.0) == replace(header, at=5.0)
    assert header.accepted(5.0).accepted(9.0).at == 5.0


def test_the_wire_form_of_knobs_is_the_callers_own() -> None:
    knobs = Knobs(name="shop.recompute", execution="skip")
    encode_knobs(knobs)["x"] = "spoiled"
    assert encode_knobs(knobs) == {"b": "shop.recompute", "x": "skip"}
    options = ["reschedule", {"after": 7}]
    assert encode_knobs(Knobs(execution=options)) == {"x": options}, "a list has no hash"


@pytest.mark.parametrize("broken", [{"n": -1}, {"n": 1.0}, {"at": -1.0}, {"at": float("nan")}, {"p": -1}])
def test_a_number_below_zero_or_of_another_kind_makes_a_header_none_of_ours(broken):
    """A store would refuse it in the middle of a claim."""
    assert Header.decode({"v": 1, "id": "x", **broken}) is None


@pytest.mark.parametrize(
    "knobs", [{"e": float("nan")}, {"e": -5}, {"g": -1}, {"t": float("inf")}, {"g": 1.0}]
)
def test_a_knob_below_zero_or_infinite_makes_a_header_none_of_ours(knobs):
    """The message is adopted by the worker's own policy then."""
    assert Header.decode({"v": 1, "id": "x", "k": [["f" * 64, knobs]]}) is None


def test_a_life_tells_jobs_of_one_id_apart_and_travels():
    """Only where the caller gave the id."""
    header = Header("report-7", life="a1b2")
    assert header.token == "report-7\x1ea1b2"
    assert Header.decode(header.encode()) == header
    assert task_id_of(header.token) == "report-7"
    assert Header("x").token == "x" == task_id_of("x")
