"""The state machine that walks through the world at random."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from .bench import Bench
from .world import POLICIES, Delivery, Policy, World

FATES = (
    *["confirmed"] * 5, "published", "acquired",
    "dead before publish", "dead before confirm", "failed", "unknown",
)  # fmt: skip
PLACE = st.integers(0, 7)
SELDOM = st.sampled_from([False, False, False, True])


class StoreMachine(RuleBasedStateMachine):
    """Random dispatches, deliveries, endings, faults and time; the world checks every answer."""

    policies: ClassVar[tuple[Policy, ...]] = POLICIES
    late: ClassVar[tuple[bool, ...]] = (False, True)
    jobs: ClassVar[int] = 8
    workers: ClassVar[int] = 3

    def benches(self) -> list[Bench]:
        """Return fresh stores; two must agree."""
        raise NotImplementedError

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        policy = data.draw(st.sampled_from(self.policies))
        late = data.draw(st.sampled_from(self.late))
        self.world = World(policy, late, self.benches())

    def pick(self, place: int) -> Delivery:
        running = self.world.running()
        return running[place % len(running)]

    # --- dispatching ---

    @precondition(lambda self: len(self.world.jobs) < self.jobs)
    @rule(fate=st.sampled_from(FATES), due_in=st.sampled_from([0.0, 0.0, 5.0, 40.0]), lost=SELDOM)
    def dispatch(self, fate: str, due_in: float, lost: bool) -> None:
        self.world.dispatch(fate, due_in, lost)

    @precondition(lambda self: any(job.state in ("acquired", "published") for job in self.world.jobs))
    @rule(fate=st.sampled_from(FATES))
    def go_on(self, fate: str) -> None:
        """A slow dispatcher goes on."""
        job = next(job for job in self.world.jobs if job.state in ("acquired", "published"))
        if job.state == "acquired":
            self.world.follow(job, fate)
        else:
            self.world.confirm(job)

    # --- working ---

    @precondition(lambda self: self.world.queue and len(self.world.running()) < self.workers)
    @rule(place=PLACE, lost=SELDOM)
    def deliver(self, place: int, lost: bool) -> None:
        self.world.deliver(place, lost)

    @precondition(lambda self: self.world.running())
    @rule(place=PLACE, requeue=SELDOM, lost=SELDOM, acked=st.sampled_from([True, True, False]))
    def finish(self, place: int, requeue: bool, lost: bool, acked: bool) -> None:
        self.world.finish(self.pick(place), requeue, lost, acked)

    @precondition(lambda self: self.world.running())
    @rule(place=PLACE, due_in=st.sampled_from([0.0, 5.0]))
    def retry(self, place: int, due_in: float) -> None:
        delivery = self.pick(place)
        if not delivery.retried and delivery.n < 3:
            self.world.retry(delivery, due_in)

    @precondition(lambda self: self.world.running())
    @rule(place=PLACE)
    def renew(self, place: int) -> None:
        self.world.renew(self.pick(place))

    # --- faults ---

    @precondition(lambda self: self.world.running())
    @rule(place=PLACE, seconds=st.sampled_from([0.0, 31.0]))
    def crash(self, place: int, seconds: float) -> None:
        self.world.crash(self.pick(place))
        self.world.advance(seconds)

    @precondition(lambda self: self.world.late and any(not d.moved for d in self.world.running()))
    @rule()
    def redeliver(self) -> None:
        self.world.redeliver(next(d for d in self.world.running() if not d.moved))

    @precondition(lambda self: self.world.running())
    @rule(place=PLACE)
    def sleep(self, place: int) -> None:
        self.world.sleep(self.pick(place))

    @precondition(lambda self: self.world.late and any(not d.moved for d in self.world.running()))
    @rule()
    def overtake(self) -> None:
        """A worker is paused for longer than its lease, and a copy of its message runs meanwhile."""
        paused = next(d for d in self.world.running() if not d.moved)
        self.world.redeliver(paused)
        self.world.sleep(paused)
        self.world.deliver(len(self.world.queue) - 1, lost=False)

    @precondition(lambda self: any(not d.retried and d.n < 3 for d in self.world.running()))
    @rule()
    def die_after_retry(self) -> None:
        """A worker is killed after its body has published its own id, before it gave the seat back."""
        delivery = next(d for d in self.world.running() if not d.retried and d.n < 3)
        self.world.retry(delivery, 0.0)
        self.world.crash(delivery)
        self.world.advance(31.0)

    @precondition(lambda self: self.world.queue)
    @rule(place=PLACE, really=SELDOM)
    def revoke(self, place: int, really: bool) -> None:
        if really:
            self.world.revoke(place)

    # --- time ---

    @rule(seconds=st.sampled_from([1.0, 10.0, 16.0, 31.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(really=SELDOM)
    def jump(self, really: bool) -> None:
        if really:
            self.world.jump()

    @rule()
    def reap(self) -> None:
        self.world.reap()

    # --- always, and at the end ---

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
