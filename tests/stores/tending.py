"""Tending: jobs are called off, seats removed, the lapsed reaped; a store or a broker forgets."""

from __future__ import annotations

from django_jobdedup.stores.record import Holder
from django_jobdedup.stores.results import Gone, Withdrawn

from .bench import REF
from .books import Message
from .policies import MARK, PENDING
from .working import Working


class Tending(Working):
    """The world as operators and the reaper see it."""

    # --- called off -----------------------------------------------------------------------------------

    def revoke(self, place: int) -> None:
        """A message is found revoked or expired before its start."""
        delivery = self.take(place)
        delivery.state = "ended"
        self.visible.add(delivery.id)
        self.call_off(delivery.id, delivery.n)

    def cancel(self, id: str) -> None:
        """A person calls a waiting job off; its message is still in the queue."""
        self.call_off(id, self.books.memory(id, self.now).n + 1)

    def call_off(self, id: str, n: int) -> None:
        """Take a waiting seat away and close the id, unless it runs, or this attempt has ended."""
        memory, seat = self.books.memory(id, self.now), self.books.seats.get(id)
        answer = self.twice(
            "withdraw", lambda b: b.withdraw(id, n, waiting=True, marker_ttl=MARK), True, id=id
        )
        over = memory.final or bool(memory.by) or memory.n >= n
        runs = seat is not None and not seat.waits
        if isinstance(answer, Gone):
            assert over or runs, f"{id} attempt {n} cannot be called off: {seat}, {memory}"
            return
        assert isinstance(answer, Withdrawn)
        assert not runs, f"P2: {seat} was called off while it runs"
        again = memory.final and id in self.called_off  # the same answer as before
        assert again or not over, f"attempt {n} of {id} was called off after its end: {memory}"
        self.called_off.add(id)
        self.books.seats.pop(id, None)
        self.books.line.pop(id, None)
        self.books.remember(id, self.now, MARK, final=True)
        self.closed.add(id)
        self.visible |= {id, *(job.id for job in self.jobs if job.into == id)}

    # --- removed as it was shown ------------------------------------------------------------------------

    def remove(self, shown: Holder) -> None:
        """A person, or the reaper with a proof that may be wrong, frees what a screen has shown."""
        seat = self.books.seats.get(shown.id)
        answer = self.twice("remove", lambda b: b.store.remove(REF, shown), shown.state != "K", id=shown.id)
        seen = (shown.state, shown.since, shown.until, shown.merged)
        same = seat is not None and (seat.letter, seat.since, seat.until, seat.merged) == seen
        if not same:
            assert isinstance(answer, Gone) or seat is None, f"P2: {shown} was shown, and {seat} removed"
            return
        assert isinstance(answer, Withdrawn), f"{seat} is as it was shown, and stays"
        assert seat is not None
        self.flight_excused = True
        if seat.letter == "R":
            self.overlap_excused = True
            self.removed.add(shown.id)
            self.lost.add(shown.id)  # told by whoever removed it
        del self.books.seats[shown.id]
        self.forgive(shown.id)

    def forgive(self, id: str) -> None:
        """Owe no longer what only a seat has kept: the calls in it, and the job if it has no message."""
        for job in [*self.jobs, *self.retries]:
            if job.into == id or (job.id == id and not self.is_out(id, job.n)):
                job.owed = False
        for delivery in self.deliveries:  # nor will a redelivery know with which arguments it ran
            delivery.covers = [job for job in delivery.covers if job.into != id]

    # --- time's work ------------------------------------------------------------------------------------

    def reap(self, fate: str = "confirmed") -> None:
        """The reaper looks, publishes what is overdue, and confirms it, as far as ``fate`` lets it come."""
        late = [seat for seat in self.books.seats.values() if seat.intent and seat.until <= self.now]
        lost = [seat for seat in self.books.seats.values() if seat.letter == "R" and not seat.lives(self.now)]
        found = self.ask("reap", lambda bench: bench.sweep())
        told = {overdue.id: (overdue.n, self.mean_by(overdue.args)) for overdue in found.overdue}
        if self.alone:
            due = {seat.id: (self.books.memory(seat.id, self.now).n + 1, seat.version) for seat in late}
            assert told == due, f"overdue is {due}, but the reaper says {told}"
            dead = [seat for seat in self.books.seats.values() if not seat.lives(self.now)]
            assert not dead, f"P4: the reaper leaves the dead: {dead}"
        if self.alone:
            waiters = list(found.waiters)
            for seat in lost:
                self.books.line.pop(seat.id, None)
                self.woken_by_end(waiters.pop(0) if waiters else None, wakes=True)
            assert not waiters, f"{waiters} are to be woken, and nobody sleeps"
        for overdue in found.overdue:
            seat = self.books.seats[overdue.id]
            seat.letter, seat.until = "W", self.now + PENDING
        for id, (n, version) in told.items():
            if fate != "dead before publish" and version is not None:
                self.push(id, n, version)
        if fate == "confirmed" and told:
            self.say_it_exists(list(told))

    # --- forgetting -------------------------------------------------------------------------------------

    def lose(self, place: int) -> None:
        """The broker loses a message: only a store that keeps its call can bring it back."""
        message = self.queue.pop(place % len(self.queue))
        seat = self.books.seats.get(message.id)
        self.dropped.add(message.id)
        if seat is not None and seat.intent:
            return
        self.gone(message)

    def gone(self, message: Message) -> None:
        """The broker has lost what there was of a message: its job is owed no more."""
        for job in [*self.jobs, *self.retries]:
            if job.id == message.id and not self.is_out(message.id, job.n):
                job.owed = False
        if not self.is_out(message.id):
            self.visible.add(message.id)

    def flush(self) -> None:
        """The store forgets everything: what is out still runs, calls that only it has kept are lost."""
        for bench in self.benches:
            bench.forget()
        ids = {job.id for job in self.jobs} | {job.into for job in self.jobs if job.into}
        self.books.forget()
        self.holders, self.heard = {}, 0
        for id in ids:
            self.forgive(id)
        self.flight_excused = self.overlap_excused = True
        self.lost |= {delivery.id for delivery in self.deliveries}
        self.pass_time(1.0)  # fences come from the clock

    def pass_time(self, seconds: float) -> None:
        """Let time pass for everybody."""
        raise NotImplementedError
