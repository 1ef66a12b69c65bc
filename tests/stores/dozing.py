"""Dozing: who meets a shut gate may lie down in the line of its lock, and a release wakes the first in it."""

from __future__ import annotations

from django_jobdedup.stores.requests import Sleep
from django_jobdedup.stores.results import Asleep, Open, Overdue

from .bench import REF
from .books import Delivery, Message, Sleeper
from .lasting import Lasting

LIFE = 60.0
"""For how long one may be woken, seconds."""


class Dozing(Lasting):
    """The world as the line of the lock sees it."""

    def lie_down(self, delivery: Delivery) -> bool:
        """Stand in the line; say whether the message sleeps from now on."""
        id, n, message, gate = delivery.id, delivery.n, delivery.message, self.policy.gate
        call = b"%d" % message.version
        request = Sleep(REF, id, n, gate, call=call, life=LIFE, woken=message.woken)
        answer = self.ask("asleep", lambda bench: bench.store.asleep(request), id=id)
        if len(self.books.running(id, self.now)) < gate:
            assert answer == Open(), f"nobody is in the way of {id}, and it was told {answer}"
            return False
        assert answer == Asleep(), f"the gate is shut for {id}, and it was told {answer}"
        seat = self.books.seats.get(id)
        if seat is None or seat.version is None:  # else its seat keeps the call
            until = self.now + LIFE
            self.books.doze(Sleeper(id, n, message.version, self.now, until), self.now, message.woken)
        return True

    def put_off(self, delivery: Delivery, shut: bool, sleeps: bool) -> None:
        """The message comes again later; but not a second one of a job, whose first sleeps still."""
        woken = delivery.message.woken and shut
        if self.dozes and shut and (sleeps or woken):
            woken = self.lie_down(delivery) and woken
        if not woken:
            self.queue.append(delivery.message)
        elif not self.is_out(delivery.id, delivery.n):
            self.gone(delivery.message)  # the broker has lost the first

    def woken_by_end(self, waiter: Overdue | None, wakes: bool) -> None:
        """A release names who came first of those that sleep."""
        first = self.books.first_asleep(self.now)
        if first is None:
            assert waiter is None, f"{waiter} is to be woken, and nobody sleeps"
            return
        expected = (first.id, first.n, first.version)
        assert waiter is not None, f"{expected} sleeps on"
        assert (waiter.id, waiter.n, self.mean_by(waiter.args)) == expected, f"{waiter} before {expected}"
        if wakes:
            self.queue.append(Message(*expected, woken=True))

    def gone(self, message: Message) -> None:
        """The broker has lost what there was of a message."""
        raise NotImplementedError
