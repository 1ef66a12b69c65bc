"""The state machine that walks through the world at random."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from .bench import Bench
from .world import LEASE, PENDING, POLICIES, Delivery, Job, Policy, World

FATES = (
    *["confirmed"] * 5, "published", "acquired",
    "dead before publish", "dead before confirm", "failed", "unknown",
)  # fmt: skip
PLACE = st.integers(0, 7)


def runs(machine: StoreMachine) -> bool:
    """Say whether a body runs."""
    return bool(machine.world.running())


def can_deliver(machine: StoreMachine) -> bool:
    """Say whether there is a message, and a worker for it."""
    return bool(machine.world.queue) and len(machine.world.running()) < machine.workers


def may_retry_itself(delivery: Delivery) -> bool:
    """Say whether a body has not yet published its own id."""
    return not delivery.retried and delivery.n < 3


def may_retry(machine: StoreMachine) -> bool:
    """Say whether some body may publish its own id."""
    return any(may_retry_itself(delivery) for delivery in machine.world.running())


def is_shared(world: World, job: Job) -> bool:
    """Say whether others have merged into a job that is not yet published."""
    return job.state == "acquired" and any(other.into == job.id for other in world.jobs)


def shared(machine: StoreMachine) -> bool:
    """Say whether there is such a job."""
    return any(is_shared(machine.world, job) for job in machine.world.jobs)


def may_be_copied(machine: StoreMachine) -> bool:
    """Say whether the visibility timeout can copy a message."""
    return machine.world.late and any(not delivery.moved for delivery in machine.world.running())


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

    # Hypothesis switches a random half of the rules off in each walk. So what everything needs is there
    # twice, plain and with all its choices, and each fault is a rule of its own.

    # --- dispatching ---

    @precondition(lambda self: len(self.world.jobs) < self.jobs)
    @rule(fate=st.sampled_from(FATES), due_in=st.sampled_from([0.0, 5.0, 40.0]), lost=st.booleans())
    def dispatch(self, fate: str, due_in: float, lost: bool) -> None:
        self.world.dispatch(fate, due_in, lost)

    @precondition(lambda self: len(self.world.jobs) < self.jobs)
    @rule()
    def dispatch_well(self) -> None:
        self.world.dispatch("confirmed", 0.0, lost=False)

    @precondition(lambda self: len(self.world.jobs) < self.jobs)
    @rule()
    def dispatch_slowly(self) -> None:
        self.world.dispatch("acquired", 0.0, lost=False)

    @precondition(lambda self: any(job.state in ("acquired", "published") for job in self.world.jobs))
    @rule(fate=st.sampled_from(FATES))
    def go_on(self, fate: str) -> None:
        """A slow dispatcher goes on."""
        job = next(job for job in self.world.jobs if job.state in ("acquired", "published"))
        if job.state == "acquired":
            self.world.follow(job, fate)
        else:
            self.world.confirm(job)

    @precondition(shared)
    @rule()
    def fail_a_shared_one(self) -> None:
        """A publish fails after others have merged into it."""
        self.world.fail(next(job for job in self.world.jobs if is_shared(self.world, job)), went_out=False)

    # --- working ---

    @precondition(can_deliver)
    @rule(place=PLACE, lost=st.booleans())
    def deliver(self, place: int, lost: bool) -> None:
        self.world.deliver(place, lost)

    @precondition(can_deliver)
    @rule()
    def deliver_the_first(self) -> None:
        self.world.deliver(0, lost=False)

    @precondition(runs)
    @rule(place=PLACE, requeue=st.booleans(), lost=st.booleans(), acked=st.booleans())
    def finish(self, place: int, requeue: bool, lost: bool, acked: bool) -> None:
        self.world.finish(self.pick(place), requeue, lost, acked)

    @precondition(runs)
    @rule()
    def finish_the_last(self) -> None:
        self.world.finish(self.world.running()[-1], requeue=False, lost=False)

    @precondition(may_retry)
    @rule(due_in=st.sampled_from([0.0, 5.0]))
    def retry(self, due_in: float) -> None:
        self.world.retry(next(d for d in self.world.running() if may_retry_itself(d)), due_in)

    @precondition(lambda self: runs(self) and may_retry_itself(self.world.running()[-1]))
    @rule()
    def retry_and_end(self) -> None:
        """What a retry usually is: the body publishes its own id and ends."""
        last = self.world.running()[-1]
        self.world.retry(last, 0.0)
        self.world.finish(last, requeue=False, lost=False)

    @precondition(runs)
    @rule(place=PLACE)
    def renew(self, place: int) -> None:
        self.world.renew(self.pick(place))

    # --- faults ---

    @precondition(runs)
    @rule(place=PLACE)
    def crash(self, place: int) -> None:
        self.world.crash(self.pick(place))

    @precondition(runs)
    @rule(place=PLACE)
    def crash_long_ago(self, place: int) -> None:
        self.world.crash(self.pick(place))
        self.world.advance(LEASE + 1)

    @precondition(runs)
    @rule(place=PLACE)
    def sleep(self, place: int) -> None:
        self.world.sleep(self.pick(place))

    @precondition(may_be_copied)
    @rule()
    def redeliver(self) -> None:
        self.world.redeliver(next(d for d in self.world.running() if not d.moved))

    @precondition(may_be_copied)
    @rule()
    def overtake(self) -> None:
        """A worker is paused for longer than its lease, and a copy of its message runs meanwhile."""
        paused = next(d for d in self.world.running() if not d.moved)
        self.world.redeliver(paused)
        self.world.sleep(paused)
        self.world.deliver(len(self.world.queue) - 1, lost=False)

    @precondition(may_be_copied)
    @rule()
    def wake_up_after_the_end(self) -> None:
        """The same, and the copy has ended when the first one goes on and publishes its own id."""
        paused = next(d for d in self.world.running() if not d.moved)
        self.overtake()
        copy = self.world.running()[-1]
        if copy is not paused:
            self.world.finish(copy, requeue=False, lost=False)
        if may_retry_itself(paused):
            self.world.retry(paused, 0.0)

    @precondition(may_retry)
    @rule()
    def die_after_retry(self) -> None:
        """A worker is killed after its body has published its own id, before it gave the seat back."""
        delivery = next(d for d in self.world.running() if may_retry_itself(d))
        self.world.retry(delivery, 0.0)
        self.world.crash(delivery)
        self.world.advance(LEASE + 1)

    @precondition(lambda self: self.world.queue)
    @rule(place=PLACE)
    def revoke(self, place: int) -> None:
        self.world.revoke(place)

    # --- time ---

    @rule(seconds=st.sampled_from([1.0, 10.0, PENDING + 1, LEASE + 1]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule()
    def reap(self) -> None:
        self.world.reap()

    @rule(really=st.integers(0, 3))
    def jump(self, really: int) -> None:
        if really == 3:
            self.world.jump()

    # --- always, and at the end ---

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
