"""The database store alone, with somebody else's step between its reading and its writing.

A random walk in one thread never races. Here a question of the walk is stopped after it has read what it
decides on, other questions are asked and answered, and only then may it write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_jobdedup.stores.database.line import Sql
from django_jobdedup.stores.database.purpose import Purpose
from django_jobdedup.stores.database.verbs import Verbs
from django_jobdedup.stores.database.view import View
from tests.rig.engines import Engine

from .bench import DatabaseBench
from .books import Delivery
from .machine import StoreMachine
from .walking import PLACE, can_deliver, may_dispatch, runs, step


class InterruptedVerbs(Verbs):
    """Verbs that let somebody else come between, once."""

    between: Callable[[], None] | None = None

    def settle(self, sql: Sql, view: View, purpose: Purpose, decide: Any) -> Any:
        """Be stopped, then decide and write."""
        if purpose.verb != "inspect":  # a look at the record is the world's own
            call, self.between = self.between, None
            if call is not None:
                call()
        return super().settle(sql, view, purpose, decide)


class InterruptedBench(DatabaseBench):
    """The database store on a bench, to be interrupted."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.verbs = InterruptedVerbs(self.store.line, self.store.verbs.grace)
        self.store.verbs = self.verbs

    def interrupt(self, call: Callable[[], None]) -> None:
        """Let ``call`` come between the reading and the writing of the next question."""
        self.verbs.between = call


class InterruptedMachine(StoreMachine):
    """The walk, with questions that come between."""

    bench: InterruptedBench
    ending: Delivery | None = None
    """The body that is just giving its seat back."""

    def benches(self) -> list[Any]:
        """Return the one store."""
        self.bench.clear()
        self.bench.verbs.between = None
        return [self.bench]

    def in_between(self, what: str) -> None:
        """Ask something else."""
        world = self.world
        if what == "dispatch" and len(world.jobs) < self.jobs:
            world.dispatch("confirmed", 0.0, lost=False)
        elif what == "deliver" and can_deliver(self):
            world.deliver(0, lost=False)
        elif what == "renew":
            for delivery in world.running():
                world.renew(delivery)
        elif what == "reap":
            world.reap()
        elif what == "finish":
            for delivery in [each for each in world.running() if each is not self.ending][:1]:
                world.finish(delivery)
        elif what == "remove":
            for holder in list(world.holders.values())[:1]:
                world.remove(holder)

    OTHERS = ("dispatch", "deliver", "renew", "reap", "finish", "remove")

    @step(may_dispatch, other=OTHERS)
    def dispatch_interrupted(self, other: str) -> None:
        self.bench.interrupt(lambda: self.in_between(other))
        self.world.dispatch("confirmed", 0.0, lost=False)
        self.bench.verbs.between = None

    @step(can_deliver, other=OTHERS, place=PLACE)
    def deliver_interrupted(self, other: str, place: int) -> None:
        self.bench.interrupt(lambda: self.in_between(other))
        self.world.deliver(place, lost=False)
        self.bench.verbs.between = None

    @step(runs, other=OTHERS)
    def finish_interrupted(self, other: str) -> None:
        self.ending = self.world.running()[0]
        self.bench.interrupt(lambda: self.in_between(other))
        self.world.finish(self.ending)
        self.bench.verbs.between, self.ending = None, None

    @step(runs, other=("renew", "deliver", "dispatch"))
    def wake_up_while_others_look(self, other: str) -> None:
        """A paused worker renews just as a dispatch or the reaper finds that its lease has lapsed."""
        self.world.sleep(self.world.running()[-1])
        self.bench.interrupt(lambda: self.in_between(other))
        if len(self.world.jobs) < self.jobs:
            self.world.dispatch("confirmed", 0.0, lost=False)
        else:
            self.world.reap()
        self.bench.verbs.between = None
