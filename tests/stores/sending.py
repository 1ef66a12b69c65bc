"""Sending: dispatchers ask for seats, publish, confirm, and die in between."""

from __future__ import annotations

from typing import Any

from django_jobdedup.stores.requests import Acquire, Merge
from django_jobdedup.stores.results import (
    Acquired,
    Confirmed,
    Gone,
    Held,
    Merged,
    Outside,
    Owed,
    Withdrawn,
)

from .asking import Asking
from .bench import REF, Bench
from .books import Job, Message
from .policies import LONG, MOST_WAIT, PENDING


class Sending(Asking):
    """The world as dispatchers see it."""

    def dispatch(self, fate: str, due_in: float, lost: bool) -> None:
        """Dispatch a job; ``fate`` says how far its dispatcher comes."""
        job = self.new_job(due_in)
        if not self.policy.at_dispatch:
            return self.publish(job)
        answer = self.twice("acquire", lambda bench: self.acquire(bench, job), lost, id=job.id)
        self.told(job, answer)
        return self.go_on(job, fate)

    def dispatch_many(self, fates: list[str], due_in: float) -> None:
        """Dispatch several equal calls with one question."""
        jobs = [self.new_job(due_in) for _ in fates]
        requests = [self.request(job) for job in jobs]
        ids = [job.id for job in jobs]
        answers = self.ask("acquire", lambda bench: bench.store.acquire_many(requests), id=ids)
        for job, answer in zip(jobs, answers, strict=True):
            self.told(job, answer)
        for job, fate in zip(jobs, fates, strict=True):
            self.go_on(job, fate)

    def new_job(self, due_in: float) -> Job:
        """Return a call that nobody has asked for yet."""
        number = next(self.numbers)
        job = Job(f"j{number}", number, due_in=due_in)
        self.jobs.append(job)
        return job

    def request(self, job: Job, **knobs: Any) -> Acquire:
        """Return the question for a waiting seat."""
        policy = self.policy
        if policy.payload:
            rule = Merge(policy.wait, MOST_WAIT if policy.wait else None)
            knobs |= {"args": b"%d" % job.version, "merge": rule}
        return Acquire(
            REF, job.id, counts=policy.counts, limit=policy.limit, on_waiting=policy.on_waiting,  # type: ignore[arg-type]
            pending=PENDING, ttl=LONG, due_in=policy.wait or job.due_in, name="shop.recompute", by="web@1",
            **knobs,
        )  # fmt: skip

    def acquire(self, bench: Bench, job: Job, **knobs: Any) -> Any:
        """Ask for a waiting seat."""
        return bench.store.acquire(self.request(job, **knobs))

    def told(self, job: Job, answer: Any) -> None:
        """Note what a fresh call was told."""
        self.decided[job.version] = next(self.numbers)
        if isinstance(answer, Held):
            self.check_held(job, answer)
            job.state = "refused"
        elif isinstance(answer, Merged):
            self.merged(job, answer)
        else:
            assert isinstance(answer, Acquired), f"a fresh call was told {answer}"
            self.accepted(job)
            job.state, job.pending = "acquired", self.now + PENDING

    def go_on(self, job: Job, fate: str) -> None:
        """Publish what is asked for, as far as the dispatcher comes."""
        if job.state == "acquired":
            self.follow(job, fate)
        elif job.copy is not None:
            copy, job.copy = job.copy, None
            self.publish_copy(copy, fate)

    # --- what an answer must be -----------------------------------------------------------------------

    def accepted(self, job: Job) -> None:
        """P3: accepted while a seat is free, or over those that wait."""
        counted = self.books.counted(job.id, self.now)
        waiting = [seat for seat in counted if seat.waits]
        over: tuple[str, ...] = ()
        if len(counted) >= self.policy.limit:
            assert self.policy.on_waiting in ("over", "soonest"), (
                f"P3: {job.id} was accepted beside {counted}"
            )
            assert waiting, f"P3: {job.id} came over one that runs: {counted}"
            if self.policy.on_waiting == "soonest":
                first = min(seat.due for seat in waiting)
                assert self.now + job.due_in < first, f"{job.id} is not due sooner than {waiting}"
            over = tuple(seat.id for seat in waiting)
        self.books.accept(job, self.now, over)

    def check_held(self, job: Job, held: Held) -> None:
        """Refused only while no seat is free, in favour of one that holds and will run."""
        assert held.id != job.id, "P1: refused by its own lock"
        if not self.alone:
            return  # decided before the other question
        counted = self.books.counted(job.id, self.now)
        assert len(counted) >= self.policy.limit, (
            f"{job.id} was refused by {held}, but a seat is free: {counted}"
        )
        waiting = [seat for seat in counted if seat.waits]
        by = counted[0]
        if self.policy.on_waiting == "soonest" and waiting:
            by = min(waiting, key=lambda seat: seat.due)
            assert by.due <= self.now + job.due_in, f"{job.id} is due sooner than {by}, and was refused"
        else:
            assert self.policy.on_waiting == "keep" or not waiting, f"{job.id} was refused beside {waiting}"
        by = self.meant(counted, by, held.id)
        assert held.id == by.id, f"{job.id} was refused by {held}, not by {by}"

    def merged(self, job: Job, answer: Merged) -> None:
        """Joined the newest that waits; a copy is asked for where no message comes in time."""
        counted = self.books.counted(job.id, self.now)
        waiting = [seat for seat in counted if seat.waits]
        assert waiting, f"P1: {job.id} merged into {answer.id}, but only runs hold: {counted}"
        assert len(counted) >= self.policy.limit, f"{job.id} merged, though a seat is free"
        newest = self.meant(waiting, waiting[-1], answer.id)
        assert answer.id == newest.id, f"{job.id} merged into {answer.id}, not into {newest}"
        assert answer.n == self.books.memory(answer.id, self.now).n + 1, "a copy of an attempt that has ended"
        needed = self.books.join(newest, job, self.now)
        assert answer.publish == needed, f"merged into {newest}: {answer}"
        job.state, job.into, job.owed = "merged", answer.id, True
        job.copy = Message(answer.id, answer.n, job.version) if answer.publish else None

    def publish_copy(self, copy: Message, fate: str) -> None:
        """Publish a copy of the job that waits, as far as the dispatcher comes."""
        if fate == "dead before publish":
            return
        if fate != "failed":
            self.queue.append(copy)
        if fate in ("failed", "unknown"):
            self.withdraw(copy.id)
        elif fate != "dead before confirm":
            self.say_it_exists([copy.id])

    # --- after the answer -----------------------------------------------------------------------------

    def follow(self, job: Job, fate: str) -> None:
        """Let the dispatcher go on as far as its fate says."""
        if fate == "dead before publish":
            job.state = "dead"
            job.owed = self.policy.payload and not job.covered and job.id in self.books.seats
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
            self.push(job.id, 0, job.version)
            job.owed = not job.covered
        job.state = "withdrawn"
        if self.withdraw(job.id):
            job.owed = not job.covered
            assert any(other.into == job.id for other in self.jobs)

    def withdraw(self, id: str) -> bool:
        """Give a waiting seat back whose message does not exist; say whether it is owed to others."""
        seat = self.books.seats.get(id)
        answer = self.twice("withdraw", lambda bench: bench.withdraw(id), True, id=id)
        if seat is None or seat.letter != "P":
            assert isinstance(answer, Gone) or seat is None, f"P2: {seat} was withdrawn: {answer}"
        elif seat.merged:
            assert isinstance(answer, Owed), f"P1: others have merged into {seat}: {answer}"
            seat.until = min(seat.until, self.now)
        else:
            assert isinstance(answer, Withdrawn), f"a publish failed, and {seat} stays: {answer}"
            del self.books.seats[id]
            self.books.line.pop(id, None)
        return isinstance(answer, Owed)

    def publish(self, job: Job) -> None:
        """The message goes out: from here on the job is accepted."""
        self.push(job.id, 0, job.version)
        job.state = "published" if self.policy.at_dispatch else "confirmed"
        job.owed = not job.covered

    def confirm(self, *jobs: Job) -> None:
        """The dispatchers, or the threads behind them, say that messages exist."""
        self.say_it_exists([job.id for job in jobs])
        for job in jobs:
            job.state = "confirmed"

    def say_it_exists(self, ids: list[str]) -> None:
        """Confirm; that creates nothing, and ends those that were come over."""
        answers = self.ask("confirm", lambda b: b.store.confirm([(REF, id) for id in ids]), id=ids)
        for id, answer in zip(ids, answers, strict=True):
            there = id in self.books.seats
            assert answer == (Confirmed() if there else Gone()), f"confirm of {id}: {answer}"
            assert there or id not in self.holders, "confirm creates nothing"
            if there:
                self.come_over(self.books.confirm(id, self.now))

    def again(self, job: Job) -> None:
        """A running body is about to publish its own id: never refused."""
        id = job.id
        answer = self.ask("acquire", lambda bench: self.acquire(bench, job, again=True), id=id)
        self.decided[job.version] = next(self.numbers)
        assert isinstance(answer, Acquired | Outside), f"P1: a retry was told {answer}"
        memory, seat = self.books.memory(id, self.now), self.books.seats.get(id)
        if memory.final or memory.by:
            assert answer == Outside(), "a late worker took a seat that nobody ends"
        elif seat is not None:
            assert isinstance(answer, Acquired), f"P1: {seat} was left out: {answer}"
            self.books.arm(job, self.now)
        elif isinstance(answer, Acquired):
            counted = self.books.counted(id, self.now)
            assert len(counted) < self.policy.limit, f"P3: a retry took a seat beside {counted}"
            self.books.accept(job, self.now)
        elif self.alone:
            assert len(self.books.counted(id, self.now)) >= self.policy.limit, (
                "a seat is free, not for a retry"
            )
