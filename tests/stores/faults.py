"""What can go wrong, each fault a rule of its own: deaths, pauses, copies, losses, and hands that meddle."""

from __future__ import annotations

from collections import Counter

from django_jobdedup.stores.record import Holder

from .policies import LEASE
from .walking import (
    PLACE,
    Walk,
    held,
    is_shared,
    may_be_copied,
    may_retry,
    may_retry_itself,
    paused,
    queued,
    runs,
    shared,
    step,
    waiting,
)


class Faults(Walk):
    """The rules of misfortune."""

    shown: Holder | None = None

    def __init__(self) -> None:
        super().__init__()
        self.done: Counter[str] = Counter()

    # --- workers --------------------------------------------------------------------------------------

    @step(runs, place=PLACE)
    def crash(self, place: int) -> None:
        self.world.crash(self.pick(place))

    @step(runs, place=PLACE)
    def crash_long_ago(self, place: int) -> None:
        self.world.crash(self.pick(place))
        self.world.advance(LEASE + 1)

    @step(may_be_copied)
    def crash_and_come_again(self) -> None:
        """A worker is killed, and the broker delivers its message again."""
        self.world.crash(next(d for d in self.world.running() if not d.moved))
        self.world.advance(LEASE + 1)
        self.world.deliver(len(self.world.queue) - 1, lost=False)

    @step(runs, place=PLACE)
    def sleep(self, place: int) -> None:
        self.world.sleep(self.pick(place))

    @step(paused)
    def wake_up(self) -> None:
        """A worker that was paused renews: if nobody took its place, it goes on."""
        self.world.renew(next(each for each in self.world.running() if each.paused))

    @step(may_retry)
    def die_after_retry(self) -> None:
        """A worker is killed after its body has published its own id, before it gave the seat back."""
        delivery = next(d for d in self.world.running() if may_retry_itself(d))
        self.world.retry(delivery, 0.0)
        self.world.crash(delivery)
        self.world.advance(LEASE + 1)

    @step(may_retry, fate=("failed", "unknown"))
    def fail_to_retry(self, fate: str) -> None:
        """The publish of a retry raises, so the body ends with that error."""
        delivery = next(d for d in self.world.running() if may_retry_itself(d))
        self.world.retry(delivery, 0.0, fate)
        self.world.finish(delivery, failed=True)

    # --- the broker -----------------------------------------------------------------------------------

    @step(may_be_copied)
    def redeliver(self) -> None:
        self.world.redeliver(next(d for d in self.world.running() if not d.moved))

    @step(may_be_copied)
    def overtake(self) -> None:
        """A worker is paused for longer than its lease, and a copy of its message runs meanwhile."""
        paused = next(d for d in self.world.running() if not d.moved)
        self.world.redeliver(paused)
        self.world.sleep(paused)
        self.world.deliver(len(self.world.queue) - 1, lost=False)

    @step(may_be_copied)
    def wake_up_after_the_end(self) -> None:
        """The same, and the copy has ended when the first one goes on and publishes its own id."""
        paused = next(d for d in self.world.running() if not d.moved)
        self.overtake()
        copy = self.world.running()[-1]
        if copy is not paused:
            self.world.finish(copy)
        if may_retry_itself(paused):
            self.world.retry(paused, 0.0)

    @step(queued, place=PLACE)
    def copy(self, place: int) -> None:
        """A message that waits in a worker's hands is delivered a second time."""
        message = self.world.queue[place % len(self.world.queue)]
        if not message.foreign:  # a second adoption would be the repetition of a question, not a new one
            self.world.queue.append(message)

    @step(queued, place=PLACE)
    def lose(self, place: int) -> None:
        self.world.lose(place)

    # --- the store, and hands ---------------------------------------------------------------------------

    @step(shared)
    def fail_a_shared_one(self) -> None:
        """A publish fails after others have merged into it."""
        self.world.fail(next(job for job in self.world.jobs if is_shared(self.world, job)), went_out=False)

    @step(queued, place=PLACE)
    def revoke(self, place: int) -> None:
        self.world.revoke(place)

    @step(waiting, place=PLACE)
    def cancel(self, place: int) -> None:
        ids = [seat.id for seat in self.world.books.seats.values() if seat.waits]
        self.world.cancel(ids[place % len(ids)])

    @step(held, place=PLACE)
    def show(self, place: int) -> None:
        """A screen shows a holder; by the time somebody acts on it, it may have changed."""
        holders = list(self.world.holders.values())
        self.shown = holders[place % len(holders)]

    @step(lambda self: self.shown is not None)
    def remove_what_was_shown(self) -> None:
        shown, self.shown = self.shown, None
        assert shown is not None
        self.world.remove(shown)

    @step(lambda self: held(self) and not self.done["removed"], place=PLACE)
    def remove(self, place: int) -> None:
        """The reaper frees a seat by a proof that is wrong."""
        self.done["removed"] += 1
        holders = list(self.world.holders.values())
        self.world.remove(holders[place % len(holders)])

    # After these little is promised: so they come once in a walk, and not at once.

    @step(lambda self: len(self.world.jobs) >= self.jobs // 2 and not self.done["flushed"])
    def flush(self) -> None:
        self.done["flushed"] += 1
        self.world.flush()

    @step(lambda self: len(self.world.jobs) >= self.jobs // 2 and not self.done["jumped"])
    def jump(self) -> None:
        self.done["jumped"] += 1
        self.world.jump()
