"""Lasting: while a body runs its lease is renewed, it learns who took its place, it publishes its own id."""

from __future__ import annotations

from typing import Any

from django_jobdedup.stores.requests import Token
from django_jobdedup.stores.results import Claimed, Lost, Renewed

from .bench import REF, Bench
from .books import Delivery, Job
from .policies import LEASE, LONG
from .sending import Sending


class Lasting(Sending):
    """The world as a running body sees it."""

    def claim(self, bench: Bench, delivery: Delivery, max_starts: int = 0) -> Any:
        return bench.claim(
            delivery.id, delivery.nonce, delivery.n, lease=LEASE, ttl=LONG, late=self.life(),
            gate=self.policy.gate, max_starts=max_starts, by=delivery.process,
        )  # fmt: skip

    def renew(self, *deliveries: Delivery) -> None:
        """The lease thread renews; who was overtaken learns it."""
        tokens = [Token(REF, delivery.id, delivery.nonce, LEASE) for delivery in deliveries]
        ids, nonces = [token.id for token in tokens], [token.nonce for token in tokens]
        answers = self.ask("renew", lambda b: b.store.renew(tokens), id=ids, nonce=nonces)
        for delivery, answer in zip(deliveries, answers, strict=True):
            self.check_renewed(delivery, answer)

    def check_renewed(self, delivery: Delivery, answer: Any) -> None:
        """P2: a lease is moved for who holds it, and for nobody else."""
        seat = self.books.seats.get(delivery.id)
        holds = seat is not None and seat.letter == "R" and seat.nonce == delivery.nonce and seat.lease > 0
        if isinstance(answer, Renewed):
            assert holds, f"P2: {delivery.nonce} renewed the lease of {seat}"
            assert seat is not None
            delivery.lease = seat.lease = self.now + LEASE
            others = self.books.running(delivery.id, self.now)
            assert not self.policy.gate or len(others) < self.policy.gate, f"P3: renewed beside {others}"
            return
        assert isinstance(answer, Lost)
        assert not holds, f"the lease of {seat} was lost"
        if seat is None and delivery.lease > self.now and delivery.id not in self.removed:
            self.take_again(delivery)

    def take_again(self, delivery: Delivery) -> None:
        """The store has forgotten a run: it takes its seat again, if that is free."""
        answer = self.ask("claim", lambda b: self.claim(b, delivery), id=delivery.id, nonce=delivery.nonce)
        if isinstance(answer, Claimed):
            others = self.books.running(delivery.id, self.now)
            assert not self.policy.gate or len(others) < self.policy.gate, f"P3: taken again beside {others}"
            assert answer.fence > self.fence, "P3: the fence does not order two runs"
            self.fence = delivery.fence = answer.fence
            delivery.lease = self.now + LEASE
            self.owner[delivery.id] = delivery
            self.books.start(delivery.id, delivery.nonce, self.now, LEASE, self.late)

    def retry(self, delivery: Delivery, due_in: float, fate: str = "published") -> None:
        """The body publishes its own id; ``fate``: published, failed (it raised), unknown (and went out)."""
        job = Job(delivery.id, next(self.numbers), state="retried", n=delivery.n + 1, due_in=due_in)
        if self.policy.at_dispatch:
            self.again(job)
        if fate != "failed":
            self.push(delivery.id, delivery.n + 1, job.version)
        if fate == "published":
            delivery.retried = True
            job.owed = True
            self.retries.append(job)
