"""Working: messages are delivered, bodies run, retry, end, crash; messages are copied and lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_jobdedup.outcomes import How
from django_jobdedup.stores.results import (
    Acquired,
    Busy,
    Claimed,
    Done,
    Early,
    Exhausted,
    HandedOver,
    Held,
    Kept,
    Merged,
    NotMine,
    Outside,
    Overdue,
    Released,
    Superseded,
)

from .books import Delivery, Message
from .dozing import Dozing
from .policies import LEASE, MARK


class Working(Dozing):
    """The world as workers see it."""

    def take(self, place: int) -> Delivery:
        """Hand a message to a worker."""
        delivery = Delivery(self.queue.pop(place % len(self.queue)), f"nonce{next(self.numbers)}")
        self.deliveries.append(delivery)
        return delivery

    def redeliver(self, delivery: Delivery) -> None:
        """The visibility timeout makes a copy of a message that is not acked."""
        delivery.moved = True
        self.queue.append(delivery.message)

    def deliver(
        self, place: int, lost: bool, sleeps: bool = False, between: Callable[[], None] | None = None
    ) -> None:
        """A worker takes a message and asks for a running seat."""
        self.begin(self.take(place), lost, sleeps, between)

    def hand_on(self, delivery: Delivery) -> None:
        """The process of a body dies before it has said that it began: its pool gives the job to another."""
        delivery.state = "dead"
        self.owe_again(delivery)
        process = f"worker@{next(self.numbers)}"
        other = Delivery(delivery.message, delivery.nonce, process, moved=delivery.moved)
        self.deliveries.append(other)
        self.begin(other, lost=False)

    def begin(
        self, delivery: Delivery, lost: bool, sleeps: bool = False, between: Callable[[], None] | None = None
    ) -> None:
        """A process of a worker asks for a running seat.

        ``sleeps``: it lies down where the gate is shut, and ``between`` comes before that.
        """
        if delivery.message.foreign and not self.adopted(delivery):
            delivery.state = "ended"
            return
        max_starts = self.policy.max_starts and self.policy.max_starts + delivery.n
        answer = self.twice(
            "claim", lambda bench: self.claim(bench, delivery, max_starts), lost,
            id=delivery.id, nonce=delivery.nonce,
        )  # fmt: skip
        if isinstance(answer, Claimed):
            self.check_start(delivery, answer, max_starts)
            self.started(delivery, answer)
            return
        delivery.state = "ended"
        if isinstance(answer, Busy | Early):
            self.check_busy(delivery, answer)
            if between is not None:
                between()
            self.put_off(delivery, isinstance(answer, Busy) and not answer.own, sleeps)
        elif isinstance(answer, Exhausted):
            self.exhausted(delivery, answer, max_starts)
        else:
            self.check_over(delivery, answer)

    def adopted(self, delivery: Delivery) -> bool:
        """A message without our header asks for a seat at its reception; say whether it goes on."""
        id, version = delivery.id, delivery.message.version
        job = next(job for job in self.jobs if job.id == id)
        delivery.message = Message(id, 0, version)
        answer = self.ask("receive", lambda b: self.acquire(b, job, received=True), id=id)
        self.decided[version] = next(self.numbers)
        if isinstance(answer, Acquired):
            if id not in self.books.seats:
                self.accepted(job)
                job.owed = not job.covered
            if self.books.seats[id].letter == "P":
                self.come_over(self.books.confirm(id, self.now))
        elif isinstance(answer, Outside):
            memory = self.books.memory(id, self.now)
            assert memory.final or memory.by, f"P1: {job} was left out"
        elif isinstance(answer, Held):
            self.check_held(job, answer)
            job.state = "refused"
        else:
            assert isinstance(answer, Merged), f"a message without a header was told {answer}"
            self.merged(job, answer)
            job.copy = None  # where one is asked for, this is it
            return answer.publish
        return not isinstance(answer, Held)

    # --- starts ---------------------------------------------------------------------------------------

    def check_start(self, delivery: Delivery, answer: Claimed, max_starts: int) -> None:
        """P3: no more live runs than the gate lets. P6: no ended attempt starts. The newest arguments run."""
        id, now = delivery.id, self.now
        memory, seat = self.books.memory(id, now), self.books.seats.get(id)
        assert not memory.by, f"{id} starts, though {memory.by} took its place"
        assert not memory.final, f"P6: {id} was closed and starts"
        assert delivery.n > memory.n, f"P6: attempt {delivery.n} of {id} starts again"
        others = self.books.running(id, now)
        assert not self.policy.gate or len(others) < self.policy.gate, f"P3: {id} runs beside {others}"
        if seat is not None:
            assert not seat.runs(now), f"P3: two runs of {id}"
            assert seat.letter != "K" or not seat.lives(now), f"P6: {id} is kept and starts"
            assert not seat.first or seat.due <= now, f"{id} starts before {seat.due}"
            assert not max_starts or seat.starts < max_starts, f"{id} has started {seat.starts} times"
        version = self.mean_by(answer.args)
        assert version == (seat.version if seat else None), f"{id} runs with {version}, not as in {seat}"
        assert answer.starts == (seat.starts if seat else 0) + 1

    def started(self, delivery: Delivery, answer: Claimed) -> None:
        """P3, by the bodies themselves: none too many run; fences rise."""
        others = self.running()
        if self.policy.gate:
            live = [other for other in others if not other.paused]
            assert self.overlap_excused or len(live) < self.policy.gate, f"P3: beside {[o.id for o in live]}"
        if not self.overlap_excused:
            assert all(other.id != delivery.id for other in others), f"P3: two runs of {delivery.id}"
        # Where two may run, two that start at the same moment on a database are not ordered.
        beside = not self.alone and self.policy.gate != 1
        assert beside or answer.fence > self.fence, "P3: the fence does not order two runs"
        delivery.fence, self.fence = answer.fence, max(self.fence, answer.fence)
        delivery.state, delivery.lease = "run", self.now + LEASE
        self.owner[delivery.id] = delivery
        self.come_over(self.books.start(delivery.id, delivery.nonce, self.now, LEASE, self.late))
        self.cover(delivery, self.mean_by(answer.args))

    def cover(self, delivery: Delivery, version: int | None) -> None:
        """P1: a run covers its own dispatch, and what was merged into it up to its arguments."""
        newest = self.decided.get(delivery.message.version if version is None else version, -1)
        for job in [*self.jobs, *self.retries]:
            if job.into == delivery.id:
                covered = self.decided[job.version] <= newest
            else:
                covered = job.id == delivery.id and delivery.n >= job.n
                covered = covered and (not job.stored or self.decided[job.version] <= newest)
            if covered:
                if job.owed:
                    delivery.covers.append(job)
                job.owed, job.covered = False, True

    def check_busy(self, delivery: Delivery, answer: Busy | Early) -> None:
        """Put off only for a lease that lives, or a time that has not come."""
        id, now, seat = delivery.id, self.now, self.books.seats.get(delivery.id)
        if not self.alone:
            return
        if isinstance(answer, Early):
            assert seat is not None, f"{id} is early, and holds nothing"
            assert seat.first, f"{id} is early without a debounce"
            assert answer.retry_in == seat.due - now > 0, f"{answer} for {seat}"
        elif answer.own:
            assert seat is not None, f"{id} is busy with itself, and holds nothing"
            assert seat.runs(now), "busy with itself, but nobody runs"
        else:
            others = self.books.running(id, now)
            assert 0 < self.policy.gate <= len(others), f"the gate is shut, but few run: {others}"

    def check_over(self, delivery: Delivery, answer: Any) -> None:
        """Told to end without a run: only by a successor that exists, or by an end that was reported."""
        memory, seat = self.books.memory(delivery.id, self.now), self.books.seats.get(delivery.id)
        if isinstance(answer, Superseded):
            assert answer.by == memory.by, f"P1: superseded by {answer.by}, but {memory}"
            self.superseded[delivery.id] = answer.by
        else:
            assert isinstance(answer, Done), answer
            kept = seat is not None and seat.letter == "K" and seat.lives(self.now)
            over = memory.final or delivery.n <= memory.n or kept
            assert over, f"P1: {delivery.id} attempt {delivery.n} is called done: {memory}"

    def exhausted(self, delivery: Delivery, answer: Exhausted, max_starts: int) -> None:
        """Started too often: the seat is free, and the id closed for as long as a copy may come."""
        seat = self.books.seats.pop(delivery.id, None)
        assert seat is not None, f"{delivery.id} holds nothing, and is exhausted"
        assert max_starts, "there is no bound to the starts"
        assert delivery.id not in self.holders, "exhausted, and still there"
        assert seat.starts >= max_starts, f"exhausted after {seat.starts} of {max_starts} starts"
        assert answer.starts == seat.starts
        assert delivery.id in self.visible, "nobody is told"
        self.closed.add(delivery.id)
        self.books.remember(delivery.id, self.now, max(self.life(), 60.0), final=True)

    # --- ends -----------------------------------------------------------------------------------------

    def finish(
        self, delivery: Delivery, *, requeue: bool = False, lost: bool = False, acked: bool = True,
        failed: bool = False, wakes: bool = True,
    ) -> None:  # fmt: skip
        """The body ends and its seat is given back; then the message is acked, or the worker dies before.

        ``wakes``: whoever is named as the one that could start now is published.
        """
        keeps = self.policy.keeps and (not failed or self.policy.keep_on_failure)
        how = How.KEEP if keeps else How.RELEASE
        if delivery.retried:
            how = How.HANDOVER
        elif requeue and self.late:
            how = How.REQUEUE
        answer = self.twice(
            "finish",
            lambda b: b.finish(delivery.id, delivery.nonce, how, n=delivery.n, marker_ttl=MARK),
            lost, id=delivery.id, nonce=delivery.nonce,
        )  # fmt: skip
        self.check_finish(delivery, how, answer)
        delivery.state = "ended"
        if how is How.REQUEUE or (self.late and not acked and not delivery.moved):
            if how is How.REQUEUE:
                self.owe_again(delivery)
            if not delivery.moved or how is not How.REQUEUE:
                self.queue.append(delivery.message)
        if isinstance(answer, Released | Kept):
            self.told_of_waiter(answer.waiter, wakes)

    def check_finish(self, delivery: Delivery, how: How, answer: Any) -> None:
        """P2: a seat is given back by who holds it; and then it is free, kept, or waits."""
        id, seat = delivery.id, self.books.seats.get(delivery.id)
        mine = seat is not None and seat.letter == "R" and seat.nonce == delivery.nonce
        if how is not How.REQUEUE:
            final = mine and how in (How.RELEASE, How.KEEP)
            self.books.remember(id, self.now, MARK, n=delivery.n, final=final)
        if isinstance(answer, NotMine):
            assert not mine, "P2: the owner was told that it holds nothing"
            return
        assert mine, f"P2: {delivery.nonce} gave back the seat of another: {seat}"
        self.books.line.pop(id, None)
        assert isinstance(answer, {How.RELEASE: Released, How.KEEP: Kept}.get(how, HandedOver))
        self.books.end(id, how.value, self.now)
        if how in (How.RELEASE, How.KEEP):
            self.closed.add(id)
        assert (id in self.holders) == (id in self.books.seats), f"{how.value} of {id} left {self.holders}"

    def told_of_waiter(self, waiter: Overdue | None, wakes: bool) -> None:
        """The end of a run names the oldest job that waits with its call and could start now."""
        sleeping = [
            seat for seat in self.books.seats.values()
            if seat.letter == "W" and seat.version is not None and seat.due <= self.now
        ]  # fmt: skip
        if not self.alone:
            return
        if not sleeping:
            self.woken_by_end(waiter, wakes)
            return
        assert waiter is not None, f"{sleeping[0]} sleeps on"
        first = self.meant(sleeping, sleeping[0], waiter.id)
        n = self.books.memory(first.id, self.now).n + 1
        assert (waiter.id, waiter.n, self.mean_by(waiter.args)) == (first.id, n, first.version), waiter
        if wakes and first.version is not None:
            self.push(waiter.id, waiter.n, first.version)

    def owe_again(self, delivery: Delivery) -> None:
        """Late ack promises an end, not only a start: what this run covered is owed again."""
        if delivery.moved and delivery.id in self.dropped and not self.is_out(delivery.id, delivery.n):
            return  # the broker has lost the copy that it had made
        others = [other for other in self.running() if other.id == delivery.id and other is not delivery]
        if others:
            others[0].covers.extend(delivery.covers)
        elif delivery.id not in self.closed and delivery.n > self.books.memory(delivery.id, self.now).n:
            for job in delivery.covers:
                job.owed = True

    def crash(self, delivery: Delivery) -> None:
        """The worker is killed; with late ack its message comes back."""
        delivery.state = "dead"
        if self.late:
            if not delivery.retried:
                self.owe_again(delivery)
            if not delivery.moved:
                self.queue.append(delivery.message)
        elif any(message.id == delivery.id for message in self.queue):
            self.flight_excused = True  # a copy of an early-acked message
