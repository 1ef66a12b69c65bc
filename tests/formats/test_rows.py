"""Rows of format 1 are honoured by the database store, and written in it, on each engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobdedup.outcomes import How
from django_jobdedup.stores.database.store import DatabaseStore
from django_jobdedup.stores.durable import Fate, Intent
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Merge, Token
from django_jobdedup.stores.results import (
    Acquired,
    Busy,
    Claimed,
    Done,
    Held,
    Merged,
    NotMine,
    Outside,
    Released,
    Superseded,
)
from tests.rig.engines import Engine

from .golden import FINGERPRINT, SHARD, STATES
from .rows import FILE, MORE, play_row, put, rows

GOLDEN: dict[str, Any] = json.loads(FILE.read_text())
REF = Ref(SHARD, FINGERPRINT)

Rows = Callable[[str], DatabaseStore]


@pytest.fixture(params=["sqlite_engine", "postgresql_engine", "mariadb_engine"])
def place(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    engine: Engine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture
def holding(place: Engine) -> Iterator[Rows]:
    """Give a store whose lock is as a process of format 1 has left it in a state."""
    store = DatabaseStore("default", place.alias)

    def hold(state: str) -> DatabaseStore:
        place.empty()
        put(place.alias, GOLDEN[state])
        return store

    yield hold
    store.close()


def test_rows_of_format_1_refuse_an_equal_call(holding: Rows) -> None:
    for state, letter in {
        "pending": "P",
        "waiting": "W",
        "running": "R",
        "kept": "K",
        "handed over": "W",
    }.items():
        answer = holding(state).acquire(Acquire(REF, "stranger", counts="PWRK"))
        assert isinstance(answer, Held), state
        assert (answer.id, answer.state) == (f"id-{state}", letter)


def test_rows_of_format_1_are_claimed_and_freed_by_their_own_messages(holding: Rows) -> None:
    for state, n in {"pending": 0, "waiting": 0, "handed over": 1, "stored": 0}.items():
        store, id = holding(state), f"id-{state}"
        assert isinstance(store.claim(Claim(REF, id, n, "mine")), Claimed), state
        assert store.finish(Finish(Token(REF, id, "mine"), n, How.RELEASE)) == Released()
        assert isinstance(store.acquire(Acquire(REF, "stranger")), Acquired)


def test_a_running_row_of_format_1_keeps_the_gate_and_ends_with_its_nonce(holding: Rows) -> None:
    store = holding("running")
    assert isinstance(store.claim(Claim(REF, "stranger", 0, "theirs")), Busy)
    assert store.finish(Finish(Token(REF, "id-running", "theirs"), 0, How.RELEASE)) == NotMine()
    assert store.finish(Finish(Token(REF, "id-running", "nonce-1"), 0, How.RELEASE)) == Released()


def test_an_ended_row_of_format_1_stops_a_copy(holding: Rows) -> None:
    for state in ("kept", "ended", "called off", "handed over"):
        assert holding(state).claim(Claim(REF, f"id-{state}", 0, "again")) == Done(), state
    assert holding("ended").acquire(Acquire(REF, "id-ended")) == Outside()


def test_rows_of_format_1_that_others_have_joined_keep_their_arguments(holding: Rows) -> None:
    store = holding("merged")
    answer = store.acquire(
        Acquire(REF, "stranger", counts="PW", on_waiting="merge", args=b"3", merge=Merge(0.001))
    )
    assert isinstance(answer, Merged)
    assert (answer.id, answer.publish) == ("id-merged", False)
    started = holding("merged").claim(Claim(REF, "id-merged", 0, "mine"))
    assert isinstance(started, Claimed), "its window is over by now"
    assert started.args == b"2"


def test_rows_of_format_1_know_who_came_over_whom(holding: Rows) -> None:
    store = holding("replaced")
    assert store.claim(Claim(REF, "id-replaced", 0, "mine")) == Superseded("newcomer-1")
    assert store.fate(REF, "id-replaced") == Fate("superseded", "newcomer-1", "a newer call took its place")
    store.confirm([(REF, "newcomer-2")])
    assert store.claim(Claim(REF, "newcomer-1", 0, "mine")) == Superseded("newcomer-2")


def test_a_row_of_format_1_is_given_to_a_relay_with_its_call(holding: Rows, place: Engine) -> None:
    from django_jobdedup.models import JobIntent

    store = holding("stored")
    JobIntent.objects.using(place.alias).update(publish_at=1)
    found = store.due()
    assert isinstance(found, list)
    assert found == [
        Intent(REF, "id-stored", 0, "shop.tasks.report", b"the call", True, published=True, copies=1)
    ]


@pytest.mark.parametrize("state", [*STATES, *MORE])
def test_rows_are_written_in_format_1(sqlite_engine: Engine, state: str) -> None:
    """Column by column, but for the moments in them."""
    store = DatabaseStore("default", sqlite_engine.alias)
    play_row(store, state)
    assert list(map(without_moments, rows(sqlite_engine.alias))) == list(map(without_moments, GOLDEN[state]))
    store.close()


def without_moments(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the same word for every moment."""
    return {name: "a moment" if type(value) is int and value > 1e12 else value for name, value in row.items()}
