"""The books of the world: what was told, to whom, until when. Nothing here asks a store."""

from __future__ import annotations

from dataclasses import dataclass, field

from .policies import LONG, MOST_WAIT, PENDING, Policy


@dataclass(frozen=True)
class Message:
    """What lies in the queue: an attempt of an id, and the version of the arguments in it.

    ``foreign``: it came without our header, so no seat was asked for. ``woken``: a release has published it,
    beside the one that sleeps.
    """

    id: str
    n: int
    version: int
    foreign: bool = False
    woken: bool = False


@dataclass(eq=False)
class Job:
    """One dispatch, or one retry: what became of it, and whether it is covered by a run."""

    id: str
    version: int
    state: str = "asking"  # asking, acquired, published, confirmed, merged, refused, withdrawn, dead, retried
    n: int = 0  # the attempt from which on a run covers it
    into: str = ""  # merged: the id of the waiting job
    pending: float = 0.0
    due_in: float = 0.0
    owed: bool = False  # accepted, and no run has covered it yet
    covered: bool = False  # a run has started since it was acquired
    stored: bool = False  # a retry whose arguments lie in the seat
    copy: Message | None = None  # merged: what is asked for of the job that waits


@dataclass(eq=False)
class Delivery:
    """One message in a worker's hands."""

    message: Message
    nonce: str
    process: str = "worker@1"
    state: str = "got"  # got, run, ended, dead
    lease: float = 0.0
    paused: bool = False  # its lease lapsed while it lived
    moved: bool = False  # the broker has already made a copy of its message
    retried: bool = False  # it has published its own id
    fence: int = 0
    covers: list[Job] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def n(self) -> int:
        return self.message.n


@dataclass(eq=False)
class Seat:
    """Who holds, by what was answered: P reserved, W waits, R runs, K kept.

    ``version`` is that of the newest arguments; None where none are stored.
    """

    id: str
    letter: str
    until: float
    due: float
    since: float
    nonce: str = ""
    lease: float = 0.0
    first: float = 0.0
    over: tuple[str, ...] = ()
    version: int | None = None
    merged: int = 0
    starts: int = 0

    @property
    def waits(self) -> bool:
        return self.letter in "PW"

    @property
    def intent(self) -> bool:
        """Say whether it waits with arguments: then time makes it overdue, never dead."""
        return self.waits and self.version is not None

    def lives(self, now: float) -> bool:
        return self.intent or max(self.until, self.lease if self.letter == "R" else 0.0) > now

    def runs(self, now: float) -> bool:
        return self.letter == "R" and self.lease > now


@dataclass(eq=False)
class Sleeper:
    """A place in the line of the lock: who was put off at ``since``, and may be woken until ``until``."""

    id: str
    n: int
    version: int
    since: float
    until: float
    woken: bool = False


@dataclass(frozen=True)
class Memory:
    """What must be known of an id: the highest ended attempt, or that it is closed, or who came over it."""

    until: float
    n: int = -1
    final: bool = False
    by: str = ""


class Books:
    """The seats of one lock in order of acceptance, and the memories of ended ids."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.forget()

    def forget(self) -> None:
        """Begin with nothing, as a store does that was flushed."""
        self.seats: dict[str, Seat] = {}
        self.memories: dict[str, Memory] = {}
        self.line: dict[str, Sleeper] = {}

    def memory(self, id: str, now: float) -> Memory:
        """Return what must still be known of an id."""
        memory = self.memories.get(id)
        return memory if memory is not None and memory.until > now else Memory(0.0)

    def counted(self, but: str, now: float) -> list[Seat]:
        """Return the living seats of others that count for a dispatch, the oldest first."""
        return [
            seat
            for seat in self.seats.values()
            if seat.id != but and seat.letter in self.policy.counts and seat.lives(now)
        ]

    def running(self, but: str, now: float) -> list[Seat]:
        """Return the seats of others that run on a living lease."""
        return [seat for seat in self.seats.values() if seat.id != but and seat.runs(now)]

    # --- the line ---

    def doze(self, new: Sleeper, now: float, woken: bool) -> None:
        """Note one that lies down: at its old place, if it was put off before; ``woken``: and was woken."""
        self.line = {id: old for id, old in self.line.items() if not (old.woken and old.until <= now)}
        old = self.line.get(new.id)
        if old is not None and old.woken and old.n >= new.n and not woken:
            return  # its second message is still to come
        if old is not None and old.n == new.n:
            new.since = old.since
        self.line[new.id] = new

    def first_asleep(self, now: float) -> Sleeper | None:
        """Wake the first of those that still sleep; whoever before it does not leaves the line."""
        for each in sorted(self.line.values(), key=lambda each: (each.since, each.id)):
            if each.woken:
                continue
            memory, seat = self.memory(each.id, now), self.seats.get(each.id)
            ended = memory.final or memory.by or memory.n >= each.n
            started = seat is not None and (seat.letter == "K" or seat.runs(now))
            if each.until > now and not ended and not started:
                each.woken = True
                return each
            del self.line[each.id]
        return None

    # --- what answers change ---

    def accept(self, job: Job, now: float, over: tuple[str, ...] = ()) -> None:
        """Note a new waiting seat."""
        policy = self.policy
        due = now + (min(policy.wait, MOST_WAIT) or job.due_in)
        self.seats[job.id] = Seat(
            job.id, "P", now + PENDING, due, now,
            first=now if policy.wait else 0.0, over=over, version=job.version if policy.payload else None,
        )  # fmt: skip

    def arm(self, job: Job, now: float) -> None:
        """Note that a running body is about to publish its own id."""
        seat = self.seats[job.id]
        if seat.letter == "P":
            seat.until = now + PENDING
        elif seat.letter == "R":
            seat.due = now + (self.policy.wait or job.due_in)
            seat.until = max(seat.until, seat.due + LONG)
            if self.policy.payload:
                seat.version, job.stored = job.version, True

    def join(self, seat: Seat, job: Job, now: float) -> bool:
        """Note a call that was merged into a waiting seat; say whether a copy of its message is needed."""
        overdue, before = seat.until <= now, seat.due
        if self.policy.wait:
            seat.first = seat.first or now
            seat.due = min(now + self.policy.wait, seat.first + MOST_WAIT)
            if seat.letter == "W":
                seat.until = seat.due + LONG
        else:
            seat.due = min(seat.due, now + job.due_in)
        sooner = overdue or seat.due < before
        if overdue:
            seat.letter, seat.until, seat.due = "P", now + PENDING, max(seat.due, now)
        seat.merged, seat.version = seat.merged + 1, job.version
        return sooner

    def confirm(self, id: str, now: float) -> tuple[str, ...]:
        """Note that a message exists; return the ids that end through it."""
        seat = self.seats[id]
        if seat.letter == "P" or seat.over:
            ended = self.come_over(seat, now)
            if seat.letter == "P":
                seat.letter, seat.until = "W", seat.due + LONG
            return ended
        if seat.intent:
            seat.until = max(seat.until, max(seat.due, now) + LONG)
        return ()

    def come_over(self, seat: Seat, now: float) -> tuple[str, ...]:
        """End the waiting seats that this one has come over: their messages follow it."""
        ended = tuple(id for id in seat.over if id in self.seats and self.seats[id].waits)
        for id in ended:
            older = self.seats.pop(id)
            self.memories[id] = Memory(max(older.due + LONG, now + 60), by=seat.id)
        seat.over = ()
        return ended

    def start(self, id: str, nonce: str, now: float, lease: float, late: bool) -> tuple[str, ...]:
        """Note a run; return the ids that end through it."""
        gate = self.policy.gate
        others = [seat for seat in self.seats.values() if seat.id != id and seat.letter == "R"]
        for other in others:
            if gate and len(others) >= gate and not other.runs(now):
                other.lease = 0.0  # its place is taken: it cannot renew
        seat = self.seats.setdefault(id, Seat(id, "R", 0.0, now, now))
        ended = self.come_over(seat, now)
        seat.letter, seat.nonce, seat.lease, seat.since = "R", nonce, now + lease, now
        seat.until = now + LONG if late else 0.0
        seat.first, seat.starts = 0.0, seat.starts + 1
        return ended

    def end(self, id: str, how: str, now: float) -> None:
        """Note how a run gave its seat back: release, keep, handover or requeue."""
        if how == "release":
            del self.seats[id]
            return
        seat = self.seats[id]
        seat.nonce, seat.lease, seat.since = "", 0.0, now
        if how == "keep":
            seat.letter, seat.version = "K", None
        else:
            seat.letter, seat.due = "W", max(seat.due, now)
        seat.until = seat.due + LONG

    def remember(self, id: str, now: float, life: float, n: int = -1, final: bool = False) -> None:
        """Note an end: the id is closed, or an attempt of it is over."""
        old = self.memory(id, now)
        if not (old.final or old.by):
            until = max(now + life, old.until)
            self.memories[id] = Memory(until, final=True) if final else Memory(until, max(n, old.n))
