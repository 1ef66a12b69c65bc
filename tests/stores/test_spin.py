"""Looking for a reply: while it pays, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from socket import socket, socketpair

import pytest

from django_jobdedup.stores.redis.spin import MOST_SPARED, Spin

Pair = tuple[socket, socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two sockets that are connected to each other."""
    near, far = socketpair()
    with near, far:
        yield near, far


def spared(spin: Spin, sock: socket) -> int:
    """Count how many replies that are there already are not looked for."""
    return len(list(takewhile(lambda seen: not seen, iter(lambda: spin.look(sock), None))))


def test_a_reply_that_is_there_is_seen_each_time(pair: Pair) -> None:
    near, far = pair
    far.send(b"+PONG\r\n")
    spin = Spin()
    assert [spin.look(near) for _ in range(3)] == [True] * 3
    assert near.recv(100) == b"+PONG\r\n", "looking takes nothing"


def test_a_look_in_vain_spares_twice_as_many_as_the_one_before(pair: Pair) -> None:
    near, far = pair
    spin = Spin()
    looked = []
    for number in range(20):
        if not spin._left:
            looked.append(number)
        assert not spin.look(near)
    assert looked == [0, 2, 6, 14], "1, 3 and 7 were spared between them"
    far.send(b"x")
    assert spared(spin, near) == 15 - 5
    assert spared(spin, near) == 0


def test_some_are_looked_for_however_long_it_was_in_vain(pair: Pair) -> None:
    near, far = pair
    spin = Spin()
    for _ in range(3 * MOST_SPARED):
        spin.look(near)
    far.send(b"x")
    assert spared(spin, near) <= MOST_SPARED


def test_the_end_of_a_connection_is_something_to_read(pair: Pair) -> None:
    near, far = pair
    far.close()
    assert Spin().look(near)


def test_a_socket_that_another_thread_has_closed_is_left_to_who_reads_it(pair: Pair) -> None:
    near, _ = pair
    near.close()
    assert not Spin().look(near)


def test_a_socket_of_gevent_is_left_alone() -> None:
    gevent_socket = pytest.importorskip("gevent.socket")
    near, far = gevent_socket.socketpair()
    with near, far:
        far.send(b"x")
        assert not Spin().look(near)
