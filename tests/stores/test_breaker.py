"""The breaker: one failure opens it, one probe at a time, its pause doubles."""

from __future__ import annotations

import threading

from django_jobdedup.stores.breaker import Breaker


class Hand:
    """A clock in our hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make() -> tuple[Breaker, Hand]:
    """Return a breaker with the default pauses, and its clock."""
    hand = Hand()
    return Breaker(clock=hand), hand


def test_it_lets_everybody_through_until_something_fails() -> None:
    breaker, _ = make()
    assert not breaker.refuses()
    breaker.worked()
    breaker.failed("dead")
    assert breaker.refuses()
    assert breaker.error == "dead"


def test_after_the_pause_one_probe_is_let_through() -> None:
    breaker, hand = make()
    breaker.failed("dead")
    hand.now += 0.99
    assert breaker.refuses()
    hand.now += 0.01
    assert not breaker.refuses()
    assert breaker.refuses(), "the others wait for the probe"
    breaker.worked()
    assert not breaker.refuses()


def test_the_pause_doubles_up_to_five_seconds_while_probes_fail() -> None:
    breaker, hand = make()
    breaker.failed("dead")
    pauses = []
    for _ in range(5):
        start = hand.now
        while breaker.refuses():
            hand.now += 0.5
        pauses.append(hand.now - start)
        breaker.failed("still dead")
    assert pauses == [1, 2, 4, 5, 5]
    assert breaker.error == "still dead"


def test_the_pause_is_short_again_after_a_success() -> None:
    breaker, hand = make()
    for _ in range(3):
        breaker.failed("dead")
        hand.now += 10
        breaker.refuses()
    breaker.worked()
    breaker.failed("dead")
    hand.now += 1
    assert not breaker.refuses()


def test_many_failures_at_once_are_one() -> None:
    """Those calls had begun before it opened."""
    breaker, hand = make()
    for _ in range(20):
        breaker.failed("dead")
    hand.now += 1
    assert not breaker.refuses()


def test_a_probe_that_never_comes_back_does_not_shut_the_store_out() -> None:
    breaker, hand = make()
    breaker.failed("dead")
    hand.now += 1
    assert not breaker.refuses()
    hand.now += 4.9
    assert breaker.refuses()
    hand.now += 0.1
    assert not breaker.refuses()


def test_of_many_threads_one_probes() -> None:
    breaker, hand = make()
    breaker.failed("dead")
    hand.now += 1
    barrier = threading.Barrier(16)
    passed: list[bool] = []

    def ask() -> None:
        barrier.wait()
        passed.append(not breaker.refuses())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(passed) == 1
