"""The frame of a random walk: how it begins, what is possible when, what holds always and at the end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from .bench import Bench
from .books import Delivery, Job
from .policies import POLICIES, Policy
from .world import World

FATES = (
    *["confirmed"] * 5, "published", "acquired",
    "dead before publish", "dead before confirm", "failed", "unknown",
)  # fmt: skip
PLACE = range(8)
EITHER = (False, True)


def step(when: Callable[[Any], bool] | None = None, **choices: Sequence[Any]) -> Callable[[Any], Any]:
    """Make a method a step of the walk, possible ``when``, with an argument out of each of ``choices``."""

    def made(method: Any) -> Any:
        drawn = {name: st.sampled_from(options) for name, options in choices.items()}

        @wraps(method)
        def counted(walk: Walk, **chosen: Any) -> None:
            method(walk, **chosen)
            walk.tally.steps += 1

        made = rule(**drawn)(counted)
        made = made if when is None else precondition(when)(made)
        made.when, made.choices = when, choices
        return made

    return made


@dataclass
class Tally:
    """How many rules were executed over all walks of a machine, and which answers were met how often."""

    walks: int = 0
    steps: int = 0
    met: Counter[str] = field(default_factory=Counter)


class Walk(RuleBasedStateMachine):
    """A walk through the world of one policy, over stores that must agree."""

    policies: ClassVar[tuple[Policy, ...]] = POLICIES
    late: ClassVar[tuple[bool, ...]] = (False, True)
    jobs: ClassVar[int] = 8
    workers: ClassVar[int] = 3
    dozes: ClassVar[bool] = False
    tally: ClassVar[Tally]

    def benches(self) -> list[Bench]:
        """Return fresh stores; two must agree."""
        raise NotImplementedError

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        policy = data.draw(st.sampled_from(self.policies))
        self.start(policy, data.draw(st.sampled_from(self.late)))

    def start(self, policy: Policy, late: bool) -> None:
        self.world = World(policy, late, self.benches(), self.dozes)
        self.tally.walks += 1

    def __str__(self) -> str:
        return f"{self.world.policy.name}, {'late' if self.world.late else 'early'} ack"

    def pick(self, place: int) -> Delivery:
        running = self.world.running()
        return running[place % len(running)]

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world") and sys.exception() is None:  # else the first error is the one to see
            self.world.settle()
        if hasattr(self, "world"):
            self.tally.met += self.world.met


def may_dispatch(machine: Walk) -> bool:
    """Say whether there have not been too many calls."""
    return len(machine.world.jobs) < machine.jobs


def runs(machine: Walk) -> bool:
    """Say whether a body runs."""
    return bool(machine.world.running())


def paused(machine: Walk) -> bool:
    """Say whether the lease of a body that runs has lapsed."""
    return any(delivery.paused for delivery in machine.world.running())


def queued(machine: Walk) -> bool:
    """Say whether there is a message."""
    return bool(machine.world.queue)


def can_deliver(machine: Walk) -> bool:
    """Say whether there is a message, and a worker for it."""
    return queued(machine) and len(machine.world.running()) < machine.workers


def can_doze(machine: Walk) -> bool:
    """Say whether a message may meet a shut gate, and lie down."""
    return machine.world.dozes and can_deliver(machine) and runs(machine)


def may_retry_itself(delivery: Delivery) -> bool:
    """Say whether a body has not yet published its own id."""
    return not delivery.retried and delivery.n < 3


def may_retry(machine: Walk) -> bool:
    """Say whether some body may publish its own id."""
    return any(may_retry_itself(delivery) for delivery in machine.world.running())


def is_shared(world: World, job: Job) -> bool:
    """Say whether others have merged into a job that is not yet published."""
    return job.state == "acquired" and any(other.into == job.id for other in world.jobs)


def shared(machine: Walk) -> bool:
    """Say whether there is such a job."""
    return any(is_shared(machine.world, job) for job in machine.world.jobs)


def may_be_copied(machine: Walk) -> bool:
    """Say whether the visibility timeout can copy the message of a body that runs."""
    return machine.world.late and any(not delivery.moved for delivery in machine.world.running())


def unfinished(machine: Walk) -> bool:
    """Say whether a dispatcher is slow."""
    return any(job.state in ("acquired", "published") for job in machine.world.jobs)


def held(machine: Walk) -> bool:
    """Say whether a screen can show a holder."""
    return bool(machine.world.holders)


def waiting(machine: Walk) -> bool:
    """Say whether a job waits that a person could call off."""
    return any(seat.waits for seat in machine.world.books.seats.values())


def kept_call(machine: Walk) -> bool:
    """Say whether a job waits whose call is kept."""
    return any(seat.intent for seat in machine.world.books.seats.values())
