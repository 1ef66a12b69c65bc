"""A small world around the stores: dispatchers, a broker, workers, faults; and what was promised.

Everything is judged by this module's own bookkeeping: who was told what, whose lease ends when by our
clock, which message exists, which attempt was reported ended. The promises are those of the protocol,
P1 to P6; the stores are only asked. With two stores both must give the same answers all the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Holder
from django_jobdedup.stores.requests import Merge
from django_jobdedup.stores.results import (
    Acquired,
    Busy,
    Claimed,
    Confirmed,
    Done,
    Early,
    Gone,
    HandedOver,
    Held,
    Kept,
    Lost,
    Merged,
    NotMine,
    Outside,
    Owed,
    Released,
    Renewed,
    Superseded,
    Withdrawn,
)

from .bench import REF, Bench

ENDS = ("lost", "lapsed", "abandoned", "exhausted")
"""Events behind which nobody expects a run any more."""

PENDING, LEASE, LONG, MARK = 15.0, 30.0, 100_000.0, 10_000_000.0


@dataclass(frozen=True)
class Policy:
    """One row of knobs."""

    name: str
    counts: str = "PWR"
    gate: int = 1
    limit: int = 1
    on_waiting: str = "keep"
    payload: bool = False
    wait: float = 0.0
    keeps: bool = False
    at_dispatch: bool = True

    @property
    def exclusive(self) -> bool:
        """Say whether no more than ``limit`` may be in flight."""
        return "PWR" in self.counts and self.on_waiting == "keep"


POLICIES = (
    Policy("until_executed"),
    Policy("until_executed, two seats", limit=2, gate=2),
    Policy("until_executing", counts="PW", gate=0),
    Policy("until_expired", counts="PWRK", keeps=True),
    Policy("while_executing", at_dispatch=False),
    Policy("until_and_while_executing", counts="PW"),
    Policy("rerun", counts="PW", on_waiting="merge", payload=True),
    Policy("rerun that counts runs", on_waiting="merge", payload=True),
    Policy("replace", counts="PW", on_waiting="over"),
    Policy("keep_soonest", counts="PW", on_waiting="soonest"),
    Policy("debounce", counts="PW", on_waiting="merge", payload=True, wait=10.0),
)


@dataclass(eq=False)
class Job:
    """One dispatch: what became of it, and whether it is covered by a run."""

    id: str
    version: int
    state: str = "asking"  # asking, acquired, published, confirmed, merged, refused, withdrawn, dead
    into: str = ""  # merged: the id of the waiting job
    pending: float = 0.0
    due_in: float = 0.0
    owed: bool = False  # accepted, and no run has covered it yet
    covered: bool = False  # a run has started since it was acquired


@dataclass(eq=False)
class Delivery:
    """One message in a worker's hands."""

    id: str
    n: int
    nonce: str
    state: str = "got"  # got, run, ended, dead
    lease: float = 0.0
    paused: bool = False  # its lease lapsed while it lived
    moved: bool = False  # the broker has already made a copy of its message
    retried: bool = False  # it has published its own id
    fence: int = 0
    covers: list[Job] = field(default_factory=list)


class World:
    """The world of one policy, over one or two stores."""

    def __init__(self, policy: Policy, late: bool, benches: list[Bench]) -> None:
        self.policy, self.late, self.benches = policy, late, benches
        self.now = benches[0].now
        self.queue: list[tuple[str, int]] = []
        self.jobs: list[Job] = []
        self.deliveries: list[Delivery] = []
        self.owner: dict[str, Delivery] = {}
        self.ended: dict[str, int] = {}  # highest attempt whose end was reported
        self.closed: set[str] = set()  # ids whose owner has ended for good, or that were revoked
        self.superseded: dict[str, str] = {}
        self.exists: set[str] = set()  # ids whose message was ever made
        self.visible: set[str] = set()  # ids in an event
        self.replaced: dict[str, float] = {}  # ids whose place a newcomer took, and until when that is known
        self.fence = 0
        self.flight_excused = self.overlap_excused = False
        self.numbers = count()
        self.decided: dict[int, int] = {}  # version of arguments: when the store decided on them
        self.holders: dict[str, Holder] = {}

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, verb: str, question: Callable[[Bench], Any], *, id: str = "", nonce: str = "") -> Any:
        """Ask every store, insist on one answer, look at what it changed.

        Where another question comes between the reading and the writing of this one, it is this one that is
        decided anew: so what it changes is held against what the other has left.
        """
        answers = [question(bench) for bench in self.benches]
        before = self.holders
        assert all(answer == answers[0] for answer in answers), f"{verb}: the stores differ: {answers}"
        self.look()
        self.check_changes(verb, id, nonce, before, answers[0])
        return answers[0]

    def look(self) -> None:
        """Look at the records, which must be equal, and at the events."""
        records = [bench.record() for bench in self.benches]
        assert all(record == records[0] for record in records), f"the records differ: {records}"
        self.holders = {holder.id: holder for holder in records[0].holders} if records[0] else {}
        events = [bench.events() for bench in self.benches]
        assert all(event == events[0] for event in events), f"the events differ: {events}"
        self.visible |= {id for what, id in events[0] if what in ENDS}

    def twice(self, verb: str, question: Callable[[Bench], Any], lost: bool, **who: str) -> Any:
        """Ask, and ask again if the first reply was lost: the answer is the same."""
        first = self.ask(verb, question, **who)
        if lost:
            again = self.ask(verb, question, **who)
            assert again == first, f"{verb}: a repeated question got another answer: {first}, {again}"
        return first

    # --- P2 ---------------------------------------------------------------------------------------

    def check_changes(self, verb: str, id: str, nonce: str, before: dict[str, Holder], answer: Any) -> None:
        """A holder changes by its own id (running: and nonce), by a newcomer, or after its deadline."""
        for other, old in before.items():
            new = self.holders.get(other)
            if new is not None and self.same(old, new):
                continue
            by_name = other == id and (old.state != "R" or verb in ("acquire", "claim") or old.nonce == nonce)
            newcomer = verb in ("acquire", "confirm", "claim") and other in self.over(before, id)
            if newcomer and new is None and not self.dead(old):
                self.replaced[other] = old.due + LONG
            merged = isinstance(answer, Merged) and answer.id == other
            lapsed = new is None and self.dead(old)
            # The place at the gate of a lapsed run is taken: it keeps its seat and must learn of it.
            overtaken = verb == "claim" and new is not None and self.same(replace(old, lease=0.0), new)
            overtaken = overtaken and old.state == "R" and old.lease <= self.now
            assert by_name or newcomer or merged or lapsed or overtaken or verb == "reap", (
                f"P2: {verb} of {id} changed {old} into {new}"
            )

    @staticmethod
    def same(old: Holder, new: Holder) -> bool:
        fields = ("state", "nonce", "lease", "until", "due", "args", "over")
        return all(getattr(old, name) == getattr(new, name) for name in fields)

    @staticmethod
    def over(before: dict[str, Holder], id: str) -> tuple[str, ...]:
        """Only waiting holders named by the newcomer may end through it."""
        named = before[id].over if id in before else ()
        return tuple(other for other in named if other in before and before[other].state in "PW")

    def dead(self, holder: Holder) -> bool:
        """Say whether time has ended a holder."""
        if holder.state in "PW" and holder.args is not None:
            return False
        return max(holder.until, holder.lease if holder.state == "R" else 0.0) <= self.now

    # --- dispatching --------------------------------------------------------------------------------

    def dispatch(self, fate: str, due_in: float, lost: bool) -> None:
        """Dispatch a job; ``fate`` says how far its dispatcher comes."""
        number = next(self.numbers)
        job = Job(f"j{number}", number, due_in=due_in)
        self.jobs.append(job)
        if not self.policy.at_dispatch:
            return self.publish(job)
        answer = self.twice("acquire", lambda bench: self.acquire(bench, job), lost, id=job.id)
        self.decided[job.version] = next(self.numbers)
        if isinstance(answer, Held):
            assert answer.id != job.id, "P1: refused by its own lock"
            assert answer.id in self.holders, "refused by nobody"
            job.state = "refused"
        elif isinstance(answer, Merged):
            self.merged(job, answer)
        else:
            assert isinstance(answer, Acquired), f"a fresh call was told {answer}"
            job.state, job.pending = "acquired", self.now + PENDING
            self.follow(job, fate)
        return None

    def acquire(self, bench: Bench, job: Job, again: bool = False) -> Any:
        policy = self.policy
        knobs: dict[str, Any] = {
            "counts": policy.counts, "limit": policy.limit, "on_waiting": policy.on_waiting,
            "pending": PENDING, "ttl": LONG, "due_in": policy.wait or job.due_in, "again": again,
        }  # fmt: skip
        if policy.payload:
            rule = Merge(policy.wait, 25.0 if policy.wait else None)
            knobs |= {"args": b"%d" % job.version, "merge": rule}
        return bench.acquire(job.id, **knobs)

    def merged(self, job: Job, answer: Merged) -> None:
        assert answer.id in self.holders, "merged into nobody"
        assert self.holders[answer.id].state in "PW", f"P1: {job.id} merged into a run that has begun"
        job.state, job.into, job.owed = "merged", answer.id, True
        if answer.publish:
            self.push(answer.id, answer.n)

    def follow(self, job: Job, fate: str) -> None:
        """Let the dispatcher go on as far as its fate says."""
        if fate == "dead before publish":
            job.state = "dead"
            job.owed = self.policy.payload and not job.covered
        elif fate in ("failed", "unknown"):
            self.fail(job, went_out=fate == "unknown")
        elif fate != "acquired":
            self.publish(job)
            if fate == "dead before confirm":
                job.state, self.flight_excused = "dead", True
            elif fate == "confirmed":
                self.confirm(job)

    def fail(self, job: Job, went_out: bool) -> None:
        """A publish raised; with ``went_out`` the message is there all the same."""
        if went_out:
            self.flight_excused = True
            self.push(job.id, 0)
            job.owed = not job.covered
        answer = self.twice("withdraw", lambda bench: bench.withdraw(job.id), True, id=job.id)
        job.state = "withdrawn"
        if isinstance(answer, Owed):
            job.owed = not job.covered
            assert any(other.into == job.id for other in self.jobs)
        else:
            assert isinstance(answer, Withdrawn | Gone)

    def publish(self, job: Job) -> None:
        """The message goes out: from here on the job is accepted."""
        self.push(job.id, 0)
        job.state = "published" if self.policy.at_dispatch else "confirmed"
        job.owed = not job.covered

    def confirm(self, job: Job) -> None:
        """The dispatcher, or the thread behind it, says that the message exists."""
        was_there = job.id in self.holders
        answer = self.ask("confirm", lambda bench: bench.confirm(job.id), id=job.id)
        assert answer == (Confirmed() if was_there else Gone()), "confirm creates nothing"
        assert was_there or job.id not in self.holders, "confirm creates nothing"
        job.state = "confirmed"

    # --- the broker -----------------------------------------------------------------------------------

    def push(self, id: str, n: int) -> None:
        self.exists.add(id)
        self.queue.append((id, n))

    def take(self, place: int) -> Delivery:
        """Hand a message to a worker."""
        id, n = self.queue.pop(place % len(self.queue))
        delivery = Delivery(id, n, f"nonce{next(self.numbers)}")
        self.deliveries.append(delivery)
        return delivery

    def redeliver(self, delivery: Delivery) -> None:
        """The visibility timeout makes a copy of a message that is not acked."""
        delivery.moved = True
        self.push(delivery.id, delivery.n)

    # --- working ----------------------------------------------------------------------------------------

    def deliver(self, place: int, lost: bool) -> None:
        """A worker takes a message and asks for a running seat."""
        delivery = self.take(place)
        answer = self.twice(
            "claim",
            lambda bench: bench.claim(
                delivery.id, delivery.nonce, delivery.n, lease=LEASE, ttl=LONG,
                late=LONG if self.late else 0.0, gate=self.policy.gate,
            ),
            lost, id=delivery.id, nonce=delivery.nonce,
        )  # fmt: skip
        if isinstance(answer, Claimed):
            self.started(delivery, answer, self.running())
        elif isinstance(answer, Busy | Early):
            self.check_busy(delivery, answer)
            delivery.state = "ended"
            self.queue.append((delivery.id, delivery.n))  # put off
        else:
            self.check_over(delivery, answer)
            delivery.state = "ended"

    def running(self) -> list[Delivery]:
        """Bodies that run, by our own books."""
        return [delivery for delivery in self.deliveries if delivery.state == "run"]

    def started(self, delivery: Delivery, answer: Claimed, others: list[Delivery]) -> None:
        """P3: no more live runs than the gate lets; fences rise. P6: no ended attempt starts."""
        if self.policy.gate:
            live = [other for other in others if not other.paused]
            assert len(live) < self.policy.gate, f"P3: {delivery.id} runs beside {[o.id for o in live]}"
        if not self.overlap_excused:
            same = [other for other in others if other.id == delivery.id]
            assert not same, f"P3: two runs of {delivery.id}"
            assert delivery.n > self.ended.get(delivery.id, -1), f"P6: attempt {delivery.n} starts again"
            assert delivery.id not in self.closed, "P6: a closed id starts again"
        assert self.replaced.get(delivery.id, 0.0) <= self.now, "a superseded message starts"
        assert answer.fence > self.fence, "P3: the fence does not order two runs"
        self.fence = delivery.fence = answer.fence
        delivery.state, delivery.lease = "run", self.now + LEASE
        self.owner[delivery.id] = delivery
        self.cover(delivery, answer)

    def cover(self, delivery: Delivery, answer: Claimed) -> None:
        """P1: a run covers its own dispatch, and what was merged into it up to its arguments."""
        newest = -1 if answer.args is None else self.decided[int(answer.args)]
        for job in self.jobs:
            merged = job.state == "merged" and job.into == delivery.id and self.decided[job.version] <= newest
            if merged or job.id == delivery.id:
                if job.owed:
                    delivery.covers.append(job)
                job.owed, job.covered = False, True

    def check_busy(self, delivery: Delivery, answer: Busy | Early) -> None:
        """Put off only for a lease that lives, or a time that has not come."""
        leases = [d for d in self.deliveries if d.state in ("run", "dead") and d.lease > self.now]
        if isinstance(answer, Early):
            assert self.policy.wait, "early without a debounce"
        elif answer.own:
            assert any(d.id == delivery.id for d in leases), "busy with itself, but nobody runs"
        else:
            others = [d for d in leases if d.id != delivery.id]
            assert 0 < self.policy.gate <= len(others), "the gate is shut, but few run"

    def check_over(self, delivery: Delivery, answer: Any) -> None:
        """Told to end without a run: only by a successor that exists, or by an end that was reported."""
        if isinstance(answer, Superseded):
            assert answer.by in self.exists, f"P1: superseded by {answer.by}, which has no message"
            self.superseded[delivery.id] = answer.by
        else:
            assert isinstance(answer, Done), answer
            over = delivery.id in self.closed or delivery.n <= self.ended.get(delivery.id, -1)
            assert over, f"P1: {delivery.id} attempt {delivery.n} is called done"

    def renew(self, delivery: Delivery) -> None:
        """The lease thread renews; who was overtaken learns it."""
        answer = self.ask(
            "renew",
            lambda b: b.renew(delivery.id, delivery.nonce, LEASE),
            id=delivery.id,
            nonce=delivery.nonce,
        )
        if isinstance(answer, Renewed):
            assert self.owner.get(delivery.id) is delivery, "P2: renewed the lease of another"
            delivery.lease = self.now + LEASE
        else:
            assert isinstance(answer, Lost)
            assert delivery.paused, "a lease that never lapsed was lost"

    def retry(self, delivery: Delivery, due_in: float) -> None:
        """The body publishes its own id: never refused."""
        job = Job(delivery.id, next(self.numbers), due_in=due_in)
        if self.policy.at_dispatch:
            answer = self.ask("acquire", lambda bench: self.acquire(bench, job, again=True), id=delivery.id)
            self.decided[job.version] = next(self.numbers)
            assert isinstance(answer, Acquired | Outside), f"P1: a retry was told {answer}"
            if delivery.id in self.closed:
                assert answer == Outside(), "a late worker took a seat that nobody ends"
        delivery.retried = True
        self.push(delivery.id, delivery.n + 1)

    def finish(self, delivery: Delivery, requeue: bool, lost: bool, acked: bool = True) -> None:
        """The body ends and its seat is given back; then the message is acked, or the worker dies before."""
        how = How.KEEP if self.policy.keeps else How.RELEASE
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
                self.push(delivery.id, delivery.n)
        if how is not How.REQUEUE:
            self.ended[delivery.id] = max(self.ended.get(delivery.id, -1), delivery.n)

    def check_finish(self, delivery: Delivery, how: How, answer: Any) -> None:
        mine = self.owner.get(delivery.id) is delivery
        if isinstance(answer, NotMine):
            assert not mine or delivery.paused, "P2: the owner was told that it holds nothing"
            return
        assert mine, f"P2: {delivery.nonce} gave back the seat of another"
        expected = {How.RELEASE: Released, How.KEEP: Kept}.get(how, HandedOver)
        assert isinstance(answer, expected)
        if how in (How.RELEASE, How.KEEP):
            self.closed.add(delivery.id)
            assert how is How.KEEP or delivery.id not in self.holders, "released, but still there"
        elif not delivery.paused:
            assert delivery.id in self.holders, "P3: handed over, but nobody waits"

    def owe_again(self, delivery: Delivery) -> None:
        """Late ack promises an end, not only a start: what this run covered is owed again."""
        others = [other for other in self.running() if other.id == delivery.id and other is not delivery]
        if others:
            others[0].covers.extend(delivery.covers)
        elif delivery.id not in self.closed and delivery.n > self.ended.get(delivery.id, -1):
            for job in delivery.covers:
                job.owed = True

    def crash(self, delivery: Delivery) -> None:
        """The worker is killed; with late ack its message comes back."""
        delivery.state = "dead"
        if self.late:
            if not delivery.retried:
                self.owe_again(delivery)
            if not delivery.moved:
                self.push(delivery.id, delivery.n)

    def revoke(self, place: int) -> None:
        """A message is found revoked or expired before its start."""
        delivery = self.take(place)
        answer = self.twice(
            "withdraw",
            lambda b: b.withdraw(delivery.id, delivery.n, waiting=True, marker_ttl=MARK),
            True, id=delivery.id,
        )  # fmt: skip
        delivery.state = "ended"
        self.visible.add(delivery.id)
        if isinstance(answer, Withdrawn):
            runner = self.owner.get(delivery.id)
            assert runner is None or runner.state != "run" or runner.paused, "P2: revoked under a run"
            self.closed.add(delivery.id)
            self.visible |= {job.id for job in self.jobs if job.into == delivery.id}
        else:
            assert isinstance(answer, Gone)

    # --- time -------------------------------------------------------------------------------------------

    def advance(self, seconds: float, asleep: Delivery | None = None) -> None:
        """Let time pass; what lives renews and confirms meanwhile, except a worker that is ``asleep``."""
        left = seconds
        while left > 0:
            for job in self.jobs:
                if job.state == "published":
                    self.confirm(job)
            for delivery in self.running():
                if delivery is not asleep and not delivery.paused:
                    self.renew(delivery)
            self.pass_time(min(left, 10.0))
            left -= 10.0

    def pass_time(self, seconds: float) -> None:
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

    def reap(self) -> None:
        """The reaper looks, publishes what is overdue, and confirms it."""
        # What is doubtful is advice, and the stores may come to it at different moments.
        found = self.ask("reap", lambda bench: replace(bench.reap(), doubtful=()))
        self.visible |= {lapse.id for lapse in found.lapses}
        for overdue in found.overdue:
            self.push(overdue.id, overdue.n)
            self.ask("confirm", lambda b, id=overdue.id: b.confirm(id), id=overdue.id)  # type: ignore[misc]

    # --- promises that hold at every moment ---------------------------------------------------------------

    def check(self) -> None:
        """P3: never more accepted in flight than there are seats."""
        if self.policy.exclusive and self.policy.at_dispatch and not self.flight_excused:
            flying = [*self.queue, *((d.id, d.n) for d in self.running())]
            ids = {
                id for id, n in flying
                if id not in self.closed and n > self.ended.get(id, -1) and id not in self.superseded
            }  # fmt: skip
            assert len(ids) <= self.policy.limit, f"P3: {sorted(ids)} are in flight"

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
        assert REF.fingerprint not in self.left_over(), "P5: left over"
        for job in self.jobs:
            assert not job.owed or self.accounted(job), f"P1: {job} was accepted and lost"

    def settle_once(self) -> None:
        for delivery in self.running():
            self.finish(delivery, requeue=False, lost=False)
        for _ in range(len(self.queue)):
            self.deliver(0, lost=False)
            for delivery in self.running():
                self.finish(delivery, requeue=False, lost=False)
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
        """Say whether a job that no run covers ended visibly, or through one that came over it."""
        id = job.into or job.id
        for _ in range(len(self.jobs)):
            if id in self.visible or (id in self.closed and id != job.id and not job.into):
                return True
            if id not in self.superseded:
                return False
            id = self.superseded[id]
        return False
