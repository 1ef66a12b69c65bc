"""A small world around the stores: dispatchers, a broker, workers, faults; and what was promised.

Everything is judged by the world's own books (``books.py``): who was told what, whose lease ends when by
our clock, which message exists, which attempt was reported ended. The promises are those of the protocol,
P1 to P6; the stores are only asked. With two stores both must give the same answers all the way.
"""

from __future__ import annotations

from .bench import REF
from .books import Delivery, Job
from .policies import LEASE, LONG
from .tending import Tending


class World(Tending):
    """The world of one policy, over one store or several: its time, and the promises that span it."""

    # --- time -------------------------------------------------------------------------------------------

    def advance(self, seconds: float, asleep: Delivery | None = None) -> None:
        """Let time pass; what lives renews and confirms meanwhile, except a worker that is ``asleep``."""
        left = seconds
        while left > 0:
            published = [job for job in self.jobs if job.state == "published"]
            if published:
                self.confirm(*published)
            awake = [each for each in self.running() if each is not asleep and not each.paused]
            if awake:
                self.renew(*awake)
            self.pass_time(min(left, 10.0))
            left -= 10.0

    def pass_time(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self.now += seconds
        for bench in self.benches:
            bench.advance(seconds)
        for delivery in self.running():
            if delivery.lease <= self.now:
                delivery.paused = self.flight_excused = self.overlap_excused = True
        for job in self.jobs:
            if job.state == "acquired" and self.policy.at_dispatch and job.pending <= self.now:
                self.flight_excused = True  # a slow publisher

    def sleep(self, delivery: Delivery) -> None:
        """A living worker is paused for longer than its lease."""
        self.advance(LEASE + 1, asleep=delivery)

    def jump(self) -> None:
        """Every TTL passes; messages that exist are then not covered by a lock."""
        if self.queue or self.running():
            self.flight_excused = self.overlap_excused = True
        self.pass_time(LONG + 1)

    # --- promises that hold at every moment ---------------------------------------------------------------

    def check(self) -> None:
        """P3: never more accepted in flight than there are seats."""
        if not self.policy.exclusive or not self.policy.at_dispatch or self.flight_excused:
            return
        flying = [*self.queue, *(delivery.message for delivery in self.running())]
        ids = {each.id for each in flying if not each.foreign and self.may_run(each.id, each.n)}
        assert len(ids) <= self.policy.limit, f"P3: {sorted(ids)} are in flight"

    def may_run(self, id: str, n: int) -> bool:
        """Say whether an attempt has not ended, by its own end or by another's."""
        memory = self.books.memory(id, self.now)
        return not (id in self.closed or memory.by or n <= memory.n)

    # --- the end ------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything end: P4, the key becomes free; P5, nothing is left; P1, nothing was lost."""
        for job in self.jobs:
            if job.state == "acquired":
                self.publish(job)
        for _ in range(60):
            self.settle_once()
            if not self.queue and not self.running() and not self.holders:
                break
        assert not self.holders, f"P4: still held after everything ended: {self.holders}"
        assert not self.books.seats, f"P5: by the books these still hold: {self.books.seats}"
        assert REF.fingerprint not in self.left_over(), "P5: left over"
        for job in [*self.jobs, *self.retries]:
            assert not job.owed or self.accounted(job), f"P1: {job} was accepted and lost"
        for delivery in self.deliveries:
            killed = delivery.state == "dead" and not self.late and self.owner[delivery.id] is delivery
            told = delivery.id in self.lost or delivery.id in self.visible
            assert not killed or told, f"nobody is told of the killed run of {delivery.id}"

    def settle_once(self) -> None:
        """Run what is there, then let every lease and TTL pass."""
        for delivery in self.running():
            self.finish(delivery)
        for _ in range(len(self.queue)):
            self.deliver(0, lost=False)
            for delivery in self.running():
                self.finish(delivery)
        self.advance(LEASE + 1)
        if not self.queue:
            self.pass_time(LONG + 1)
        self.reap()

    def left_over(self) -> set[str]:
        """Return the fingerprints that the stores still list."""
        found: set[str] = set()
        for bench in self.benches:
            listed = bench.store.list_locks(REF.shard)
            assert isinstance(listed, list)
            found |= {record.ref.fingerprint for record in listed}
        return found

    def accounted(self, job: Job) -> bool:
        """Say whether a job that no run covers ended visibly, or through one that came over it and ran."""
        ran = {other.id for other in self.jobs if other.covered and not other.owed}
        id = job.into or job.id
        for _ in range(len(self.jobs)):
            own = id == job.id and not job.into and not job.n
            if id in self.visible or (id in self.closed and not own and not job.into):
                return True
            if id in ran and id not in (job.id, job.into):
                return True
            if id not in self.superseded:
                return False
            id = self.superseded[id]
        return False
