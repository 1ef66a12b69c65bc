"""A message that moves while it is read is still seen.

The moves are kombu's own, made between any two commands of the reading: taken into ``unacked``, put back at
either end, published again.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobdedup.brokers.redis import broker as redis_broker
from django_jobdedup.brokers.redis import closing, listing
from django_jobdedup.brokers.redis.broker import RedisBroker
from django_jobdedup.brokers.unreadable import Unreadable
from testproject.celery import app
from tests.rig.environment import Environment, new_namespace

from .hands import QUEUE, Hands, WatchedBroker

OTHERS = 26
"""Messages beside the one that moves: some windows of a reading."""

RETURNS = (
    "requeue",
    "restore",
    "restore before others",
    "republish",
    "republish with priority",
    "republish elsewhere",
)


class Traveller:
    """One message that moves, last in a list of others."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.id = hands.send(queue=QUEUE)
        self.others = [hands.send(queue=QUEUE) for _ in range(OTHERS)]
        self._entries = hands.client.lrange(hands.key(), 0, -1)[::-1]
        self._held: Any = None
        self._at = (QUEUE, 0)

    def begin(self) -> None:
        """Put all back to where they were: every message waits, nothing is unacked."""
        client = self.hands.client
        client.delete(*client.keys(f"{self.hands.prefix}*"))
        client.lpush(self.hands.key(), *self._entries)
        self.hands.channel.qos._delivered.clear()
        self._held, self._at = None, (QUEUE, 0)

    def strangers(self, count: int) -> list[bytes]:
        """Make up entries of messages that nobody saw yet."""
        model, id = self._entries[-1], self.others[-1].encode()
        return [model.replace(id, f"{uuid.uuid4()}".encode()) for _ in range(count)]

    def take(self) -> None:
        """Have it taken by a worker, with all that waits before it."""
        if self._held is None:
            self._held = self.hands.take_until(self.id, self._at[0])
            assert self._held is not None

    def back(self, how: str) -> None:
        """Have it put back by that worker."""
        held, self._held = self._held, None
        if held is None:
            return
        word, _, where = how.partition(" ")
        company = [self.hands.take() for _ in range(10)] if where == "before others" else []
        if word != "republish":
            getattr(self.hands, word)(held)
            for message in filter(None, company):
                self.hands.restore(message)
            return
        options = {"": {"queue": QUEUE}, "with priority": {"queue": QUEUE, "priority": 3}}
        self.hands.republish(held, **options.get(where, {"queue": "a-elsewhere"}))
        self._at = ("a-elsewhere" if where == "elsewhere" else QUEUE, 0)


@pytest.fixture(scope="module")
def traveller(redis_server: Any) -> Iterator[Traveller]:
    # Fewer lists make fewer moments.
    options = {"broker_transport_options": {"priority_steps": [0, 3]}}
    environment = Environment(new_namespace(), redis_server.url, celery=options)
    with environment.entered(app), Hands(app) as hands, pytest.MonkeyPatch.context() as patch:
        # Far less than the list, else one window or the closing look alone would see everything.
        patch.setattr(closing, "WIDTH", 5)
        patch.setattr(listing, "FIRST", 8)
        patch.setattr(listing, "MOST", 8)
        yield Traveller(hands)
    environment.clean()


def reading(traveller: Traveller, moves: list[tuple[int, Callable[[], None]]]) -> WatchedBroker:
    """Read while the moves happen, each before the command with its number; all ids must be seen."""
    traveller.begin()
    due = sorted(moves, key=lambda move: move[0])

    def before(step: int) -> None:
        while due and due[0][0] <= step:
            due.pop(0)[1]()

    broker = WatchedBroker(app, before)
    # One id: those that are still missing are what the closing look is for.
    found = broker.find([traveller.id, "gone"], [QUEUE, "a-elsewhere"])
    assert found.missing == {"gone"}, [step for step, _ in moves]
    return broker


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_one_return_at_every_pair_of_moments(traveller: Traveller) -> None:
    commands = reading(traveller, []).commands
    assert commands > 8
    for how in RETURNS:
        for first, second in itertools.combinations_with_replacement(range(commands + 1), 2):
            reading(traveller, [(first, traveller.take), (second, lambda how=how: traveller.back(how))])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moments=st.lists(st.integers(0, 12), min_size=3, max_size=8),
    ways=st.lists(st.sampled_from(RETURNS), min_size=4, max_size=4),
    data=st.data(),
)
def test_many_returns_among_the_moves_of_others(
    traveller: Traveller, moments: list[int], ways: list[str], data: st.DataObject
) -> None:
    hands = traveller.hands
    steps = sorted(moments)
    moves: list[tuple[int, Callable[[], None]]] = []
    for number, step in enumerate(steps):
        how = ways[number // 2 % 4]
        moves.append((step, traveller.take if number % 2 == 0 else lambda how=how: traveller.back(how)))
    for step in data.draw(st.lists(st.integers(0, 12), max_size=6)):
        other: Callable[[], None] = data.draw(
            st.sampled_from([lambda: hands.send(queue=QUEUE), lambda: take_other(traveller)])
        )
        moves.append((step, other))
    reading(traveller, moves)


def take_other(traveller: Traveller) -> None:
    """Run whatever is next, unless that is the traveller."""
    hands = traveller.hands
    if (message := hands.take()) is not None and message.headers["id"] != traveller.id:
        hands.channel.basic_ack(message.delivery_tag)
    elif message is not None:
        hands.restore(message)


@pytest.mark.parametrize("removed", [1, 2, 3, 5, 20])
def test_removals_from_the_middle_hide_nothing(traveller: Traveller, removed: int) -> None:
    """A purge removes what was read already, and pulls the rest below the reader's index."""
    hands = traveller.hands

    def purge() -> None:
        for entry in hands.client.lrange(hands.key(), 0, removed - 1):
            hands.client.lrem(hands.key(), 1, entry)

    ids = [traveller.id, *traveller.others]
    for moment in range(8):
        traveller.begin()
        removed_ids = set(ids[len(ids) - removed :])
        broker = WatchedBroker(app, lambda step, moment=moment: purge() if step == moment else None)
        assert broker.find([*ids, "gone"], [QUEUE]).missing - removed_ids == {"gone"}


def test_a_worker_that_takes_and_returns_all_the_time_hides_nothing(
    celery_env: Environment, hands: Hands
) -> None:
    """The same with a real consumer beside the reading, in a thread."""
    ids = [hands.send(queue=QUEUE) for _ in range(400)]
    stop = threading.Event()

    def consume() -> None:
        with Hands(app) as other:
            while not stop.is_set():
                held = [message for message in (other.take() for _ in range(20)) if message is not None]
                for number, message in enumerate(held):
                    way = (other.requeue, other.restore, lambda m: other.republish(m, queue=QUEUE))[
                        number % 3
                    ]
                    way(message)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        # Patience is for the one that is on its way from the list to unacked.
        results = [RedisBroker(app).find([*ids, "gone"], [QUEUE], patience=0.1) for _ in range(10)]
    finally:
        stop.set()
        thread.join()
    assert [found.missing for found in results] == [{"gone"}] * 10


def test_a_storm_of_pushes_during_the_reading_hides_nothing(traveller: Traveller) -> None:
    """It goes back to the head and 400 others before it: the closing look has to be a wide one."""
    hands = traveller.hands

    def storm() -> None:
        traveller.back("requeue")
        hands.client.lpush(hands.key(), *traveller.strangers(400))

    for step in range(1, 12):
        reading(traveller, [(0, traveller.take), (step, storm)])


def test_a_push_that_was_repeated_hides_nothing(traveller: Traveller) -> None:
    """A client that lost the reply pushes again: the copy of an entry lies far above the first one."""
    hands = traveller.hands

    def storm() -> None:
        traveller.back("requeue")
        hands.client.lpush(hands.key(), *traveller.strangers(20), traveller._entries[-1])

    for step in range(1, 12):
        reading(traveller, [(0, traveller.take), (step, storm)])


def test_a_list_that_cannot_be_read_in_one_piece_is_unreadable(traveller: Traveller) -> None:
    traveller.begin()
    hands = traveller.hands
    numbers = itertools.count()

    def replace_all(step: int) -> None:
        pipeline = hands.client.pipeline()
        pipeline.delete(hands.key())
        pipeline.lpush(hands.key(), *(f"{next(numbers)}" for _ in range(OTHERS)))
        pipeline.execute()

    with pytest.raises(Unreadable, match="changes faster than it can be read: 8 readings lost their place"):
        WatchedBroker(app, replace_all).find(["gone"], [QUEUE])


def test_more_pushes_than_a_look_may_take_are_unreadable(
    traveller: Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "WIDEST", 300_000)
    hands = traveller.hands

    def storm() -> None:
        hands.client.lpush(hands.key(), *traveller.strangers(800))

    with pytest.raises(Unreadable, match="Too much was pushed or put back on"):
        reading(traveller, [(5, storm)])


def test_what_vanishes_from_unacked_at_every_look_is_unreadable(traveller: Traveller) -> None:
    traveller.begin()
    hands = traveller.hands
    numbers = itertools.count()
    key = f"{hands.prefix}unacked"

    def replace_unacked(step: int) -> None:
        hands.client.delete(key)
        hands.client.hset(key, f"tag-{next(numbers)}", "[]")

    with pytest.raises(Unreadable, match="What workers hold changes faster than it can be read"):
        WatchedBroker(app, replace_unacked).find(["gone"], [QUEUE])


def test_a_message_between_list_and_unacked_is_seen_by_patience(
    traveller: Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a worker's BRPOP and its HSET a message lies in no key of Redis."""
    traveller.begin()
    hands = traveller.hands
    raw = hands.client.rpop(hands.key())
    broker = WatchedBroker(app)
    assert broker.find([traveller.id], [QUEUE]).missing == {traveller.id}

    waited = []

    def meanwhile(seconds: float) -> None:
        waited.append(seconds)
        hands.client.hset(f"{hands.prefix}unacked", "tag", b'[%s, "", "celery"]' % raw)

    monkeypatch.setattr(redis_broker.time, "sleep", meanwhile)
    assert broker.find([traveller.id], [QUEUE], patience=2.5).missing == frozenset()
    assert waited == [2.5]


def test_a_storm_during_the_patience_is_read_anew(
    traveller: Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    traveller.begin()
    monkeypatch.setattr(closing, "WIDEST", 300_000)
    hands = traveller.hands
    raw = hands.client.rpop(hands.key())

    def meanwhile(seconds: float) -> None:
        hands.client.lpush(hands.key(), *traveller.strangers(400), raw, *traveller.strangers(400))

    monkeypatch.setattr(redis_broker.time, "sleep", meanwhile)
    found = WatchedBroker(app).find([traveller.id, "gone"], [QUEUE], patience=15)
    assert found.missing == {"gone"}


def test_patience_is_not_needed_for_what_is_seen_at_once(
    traveller: Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    traveller.begin()
    monkeypatch.setattr(redis_broker.time, "sleep", lambda seconds: pytest.fail("it waited"))
    assert WatchedBroker(app).find([traveller.id], [QUEUE], patience=60).missing == frozenset()


def test_a_listing_shows_each_message_once_while_others_are_pushed(traveller: Traveller) -> None:
    traveller.begin()
    hands = traveller.hands
    broker = WatchedBroker(app, lambda step: hands.send(queue=QUEUE))

    shown = [message.id for message in broker.messages(QUEUE)]
    assert len(shown) == len(set(shown))
    assert {traveller.id, *traveller.others} <= set(shown)
    assert listing.FIRST < OTHERS
