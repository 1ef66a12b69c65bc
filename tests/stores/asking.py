"""Asking: every store gets each question, all must answer alike, and what a question changed is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from django_jobdedup.stores.record import Holder
from django_jobdedup.stores.results import Merged

from .bench import Bench
from .books import Books, Delivery, Job, Message, Seat
from .policies import LONG, Policy

LAPSES = ("lost", "lapsed", "abandoned")
"""Events of holders that time has ended."""


class Asking:
    """The world of one policy over one or more stores: its books, and its questions."""

    def __init__(self, policy: Policy, late: bool, benches: list[Bench], dozes: bool = False) -> None:
        self.policy, self.late, self.benches, self.dozes = policy, late, benches, dozes
        self.now = benches[0].now
        self.books = Books(policy)
        self.queue: list[Message] = []
        self.jobs: list[Job] = []
        self.retries: list[Job] = []
        self.deliveries: list[Delivery] = []
        self.owner: dict[str, Delivery] = {}
        self.closed: set[str] = set()  # ids whose owner has ended for good, or that were called off
        self.called_off: set[str] = set()
        self.removed: set[str] = set()  # ids whose run somebody has freed by hand
        self.dropped: set[str] = set()  # ids of which the broker has lost a message
        self.superseded: dict[str, str] = {}  # ids whose message has learned whom it follows
        self.visible: set[str] = set()  # ids in an event behind which nobody expects a run
        self.lost: set[str] = set()  # ids whose run was told as lost
        self.fence = 0
        self.flight_excused = self.overlap_excused = False
        self.numbers = count()
        self.decided: dict[int, int] = {}  # version of arguments: when the store decided on them
        self.holders: dict[str, Holder] = {}
        self.heard = 0  # how many events we know
        self.asked = 0  # how many questions were put
        self.alone = True  # nothing came between the last question and its answer
        self.mixed = False  # something has, once: of two seats taken at once either may be the older
        self.met: Counter[str] = Counter()  # which answers, by verb

    def ask(
        self,
        verb: str,
        question: Callable[[Bench], Any],
        *,
        id: str | Sequence[str] = "",
        nonce: str | Sequence[str] = "",
    ) -> Any:
        """Ask every store, insist on one answer, look at what it changed.

        Where another question comes between the reading and the writing of this one, it is this one that is
        decided anew: so what it changes is held against what the other has left.
        """
        self.asked += 1
        asked = self.asked
        answers = [question(bench) for bench in self.benches]
        self.alone = asked == self.asked
        self.mixed |= not self.alone
        before = self.holders
        assert all(answer == answers[0] for answer in answers), f"{verb}: the stores differ: {answers}"
        self.look()
        ids, nonces = ((one,) if isinstance(one, str) else one for one in (id, nonce))
        told = answers[0] if isinstance(answers[0], list) else [answers[0]]
        self.met.update(f"{verb}: {type(answer).__name__}" for answer in told)
        self.check_changes(verb, ids, nonces, before, told)
        return answers[0]

    def look(self) -> None:
        """Look at the records, which must be equal, and at the events."""
        records = [bench.record() for bench in self.benches]
        assert all(record == records[0] for record in records), f"the records differ: {records}"
        self.holders = {holder.id: holder for holder in records[0].holders} if records[0] else {}
        events = [bench.events() for bench in self.benches]
        assert all(event == events[0] for event in events), f"the events differ: {events}"
        for what, id in events[0][self.heard :]:
            self.hear(what, id)
        self.heard = len(events[0])

    def hear(self, what: str, id: str) -> None:
        """P1, P2: an end that is told is one that time has brought, or a start too many."""
        if what in LAPSES:
            seat = self.books.seats.pop(id, None)
            assert seat is not None, f"{what} of {id}, which held nothing"
            assert not seat.lives(self.now), f"P2: {what} of {id}, whose time is not over: {seat}"
            assert what == {"P": "abandoned", "R": "lost"}.get(seat.letter, "lapsed"), f"{what} of {seat}"
            self.visible.add(id)
        if what == "lost":
            self.lost.add(id)
        if what == "exhausted":
            self.visible.add(id)

    def twice(self, verb: str, question: Callable[[Bench], Any], lost: bool, **who: str) -> Any:
        """Ask, and ask again if the first reply was lost: the answer is the same."""
        first = self.ask(verb, question, **who)
        if lost:
            alone = self.alone
            again = self.ask(verb, question, **who)
            assert again == first, f"{verb}: a repeated question got another answer: {first}, {again}"
            self.alone = alone
        return first

    # --- P2 ---------------------------------------------------------------------------------------

    def check_changes(
        self,
        verb: str,
        ids: Sequence[str],
        nonces: Sequence[str],
        before: dict[str, Holder],
        answers: Sequence[Any],
    ) -> None:
        """A holder changes by its own id (running: and nonce), by a newcomer, or after its deadline."""
        merged = {answer.id for answer in answers if isinstance(answer, Merged)}
        for other, old in before.items():
            new = self.holders.get(other)
            if new is not None and self.same(old, new):
                continue
            by_name = other in ids and (
                old.state != "R" or verb in ("acquire", "claim", "remove") or old.nonce in nonces
            )
            over = {each for id in ids for each in self.over(before, id)}
            newcomer = verb in ("acquire", "confirm", "claim") and other in over
            # A message without a header is there when it asks: it comes over at once.
            received = (
                verb == "receive" and old.state in "PW" and self.policy.on_waiting in ("over", "soonest")
            )
            newcomer = newcomer or received
            lapsed = new is None and self.dead(old)
            # The place at the gate of a lapsed run is taken: it keeps its seat and must learn of it.
            overtaken = verb == "claim" and new is not None and self.same(replace(old, lease=0.0), new)
            overtaken = overtaken and old.state == "R" and old.lease <= self.now
            overdue = verb == "reap" and old.args is not None and old.until <= self.now and new is not None
            assert by_name or newcomer or other in merged or lapsed or overtaken or overdue, (
                f"P2: {verb} of {', '.join(ids)} changed {old} into {new}"
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

    # --- what we know -----------------------------------------------------------------------------

    def running(self) -> list[Delivery]:
        """Bodies that run, by our own books."""
        return [delivery for delivery in self.deliveries if delivery.state == "run"]

    def is_out(self, id: str, n: int = 0) -> bool:
        """Say whether a message of an id, of attempt ``n`` or later, is out or to come."""
        out = [*self.queue, *(delivery.message for delivery in self.running())]
        coming = not n and any(job.id == id and job.state == "acquired" for job in self.jobs)
        return coming or any(message.id == id and message.n >= n for message in out)

    def push(self, id: str, n: int, version: int, *, foreign: bool = False) -> None:
        """Put a message into the queue."""
        self.queue.append(Message(id, n, version, foreign))

    def come_over(self, ended: tuple[str, ...]) -> None:
        """Look whether those whose place was taken have really lost it."""
        for id in ended:
            assert id not in self.holders, f"{id} still holds, though another took its place"

    def meant(self, seats: list[Seat], expected: Seat, id: str) -> Seat:
        """Return the seat that an answer must name: the expected one, or any if their order is unknown."""
        found = [seat for seat in seats if self.mixed and seat.id == id]
        return found[0] if found else expected

    def mean_by(self, args: bytes | None) -> int | None:
        """Return the version that stored arguments are."""
        return int(args) if args else None

    def life(self) -> float:
        """Return how long a message may still come after a crash."""
        return LONG if self.late else 0.0
