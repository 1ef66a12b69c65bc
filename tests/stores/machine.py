"""The state machine that walks through the world at random."""

from __future__ import annotations

from .faults import Faults
from .policies import LEASE, PENDING
from .walking import (
    EITHER,
    FATES,
    PLACE,
    can_deliver,
    can_doze,
    kept_call,
    may_dispatch,
    may_retry,
    may_retry_itself,
    runs,
    step,
    unfinished,
)

DUE = (0.0, 5.0, 40.0)
SEVERAL = (
    ["confirmed", "confirmed"], ["published", "confirmed"], ["acquired", "acquired", "acquired"],
    ["failed", "confirmed"], ["dead before publish", "acquired"], ["acquired", "unknown", "confirmed"],
)  # fmt: skip


class StoreMachine(Faults):
    """Random dispatches, deliveries, endings, faults and time; the world checks every answer.

    Hypothesis switches a random half of the rules off in each walk. So what everything needs is there
    twice, plain and with all its choices.
    """

    # --- dispatching ---

    @step(may_dispatch, fate=FATES, due_in=DUE, lost=EITHER)
    def dispatch(self, fate: str, due_in: float, lost: bool) -> None:
        self.world.dispatch(fate, due_in, lost)

    @step(may_dispatch)
    def dispatch_well(self) -> None:
        self.world.dispatch("confirmed", 0.0, lost=False)

    @step(may_dispatch)
    def dispatch_slowly(self) -> None:
        self.world.dispatch("acquired", 0.0, lost=False)

    @step(lambda self: may_dispatch(self) and self.world.policy.at_dispatch, fates=SEVERAL, due_in=DUE)
    def dispatch_many(self, fates: list[str], due_in: float) -> None:
        self.world.dispatch_many(fates, due_in)

    @step(lambda self: may_dispatch(self) and self.world.policy.at_dispatch)
    def dispatch_without_header(self) -> None:
        """Somebody who does not know us sends a message."""
        job = self.world.new_job(0.0)
        job.state = "foreign"
        self.world.push(job.id, 0, job.version, foreign=True)

    @step(unfinished, fate=FATES)
    def go_on(self, fate: str) -> None:
        """A slow dispatcher goes on."""
        job = next(job for job in self.world.jobs if job.state in ("acquired", "published"))
        if job.state == "acquired":
            self.world.follow(job, fate)
        else:
            self.world.confirm(job)

    # --- working ---

    @step(can_deliver, place=PLACE, lost=EITHER, sleeps=EITHER)
    def deliver(self, place: int, lost: bool, sleeps: bool) -> None:
        self.world.deliver(place, lost, sleeps)

    @step(can_doze)
    def line_up(self) -> None:
        """All that wait meet the shut gate, and lie down."""
        for _ in range(len(self.world.queue)):
            if can_deliver(self):
                self.world.deliver(0, lost=False, sleeps=True)

    @step(can_doze, seconds=(0.0, 10.0))
    def line_up_behind(self, seconds: float) -> None:
        """One more call meets the shut gate, lies down behind the others, and the first of them is woken."""
        if may_dispatch(self):
            self.world.advance(seconds)
            self.world.dispatch("confirmed", 0.0, lost=False)
        self.line_up()
        self.finish_the_last()

    @step(lambda self: can_doze(self) and may_dispatch(self))
    def overtake_the_woken(self) -> None:
        """One is woken, a newcomer is faster, and the message that sleeps is put off once more meanwhile."""
        self.line_up()
        self.finish_the_last()
        self.world.dispatch("confirmed", 0.0, lost=False)
        for place in (len(self.world.queue) - 1, 0):
            if can_deliver(self):
                self.world.deliver(place, lost=False, sleeps=True)
        if runs(self):
            self.finish_the_last()

    @step(can_doze, place=PLACE)
    def find_the_gate_open(self, place: int) -> None:
        """A run ends between the refused start of a message and its lying down."""
        last = self.world.running()[-1]
        self.world.deliver(place, lost=False, sleeps=True, between=lambda: self.world.finish(last))

    @step(can_deliver)
    def deliver_the_last(self) -> None:
        self.world.deliver(len(self.world.queue) - 1, lost=False)

    @step(can_deliver)
    def deliver_the_first(self) -> None:
        self.world.deliver(0, lost=False)

    @step(
        runs,
        place=PLACE, requeue=EITHER, lost=EITHER, acked=EITHER, failed=EITHER,
        wakes=EITHER,
    )  # fmt: skip
    def finish(self, place: int, requeue: bool, lost: bool, acked: bool, failed: bool, wakes: bool) -> None:
        self.world.finish(
            self.pick(place), requeue=requeue, lost=lost, acked=acked, failed=failed, wakes=wakes
        )

    @step(runs, place=PLACE)
    def hand_on(self, place: int) -> None:
        delivery = self.pick(place)
        if not delivery.retried:
            self.world.hand_on(delivery)

    @step(runs)
    def finish_the_last(self) -> None:
        self.world.finish(self.world.running()[-1])

    @step(may_retry, due_in=(0.0, 5.0))
    def retry(self, due_in: float) -> None:
        self.world.retry(next(d for d in self.world.running() if may_retry_itself(d)), due_in)

    @step(lambda self: runs(self) and may_retry_itself(self.world.running()[-1]), due_in=(0.0, 40.0))
    def retry_and_end(self, due_in: float) -> None:
        """What a retry usually is: the body publishes its own id and ends."""
        last = self.world.running()[-1]
        self.world.retry(last, due_in)
        self.world.finish(last)

    @step(runs, place=PLACE)
    def renew(self, place: int) -> None:
        self.world.renew(self.pick(place))

    # --- time ---

    @step(seconds=(1.0, 10.0, PENDING + 1, LEASE + 1))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @step(lambda self: not runs(self) and kept_call(self))
    def wait_for_long(self) -> None:
        """Nothing is heard of a job whose call is kept, for its TTL."""
        self.world.jump()

    @step(fate=("confirmed", "dead before publish", "dead before confirm"))
    def reap(self, fate: str) -> None:
        self.world.reap(fate)
